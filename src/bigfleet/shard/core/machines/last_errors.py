"""What a provider says of a machine that failed, without the user data that the machine was given.

A provider repeats its words in every List, also when nobody knows the blob any more: after its binding has ended, and
after a restart of the shard. Then nothing that may be part of one is kept (`model.blob.plain_words`). Whoever takes
`last_error` from a provider's record takes it from here.
"""

from __future__ import annotations

from bigfleet.model.blob import plain_words, redact
from bigfleet.model.machine import CallKind
from bigfleet.shard.contract.events import ListedMachine
from bigfleet.shard.core.state.fleet import Record
from bigfleet.shard.core.state.operations import Operation


def error_during(operation: Operation, listed: ListedMachine) -> str:
    """What is wrong with a machine on which an operation is under way: it may know the blob."""
    if operation.blob:
        return redact(listed.last_error, operation.blob)
    # A host that is being made was given nothing yet.
    return listed.last_error if operation.call == CallKind.CREATE else _of_unknown_blob(listed)


def error_seen(record: Record | None, listed: ListedMachine) -> str:
    """What is wrong with a machine that nothing is done to; words that were cleaned before stay as they are."""
    if record is not None and record.said == said(listed):
        return record.error
    return _of_unknown_blob(listed)


def said(listed: ListedMachine) -> int:
    """What `Record.said` remembers of words that were cleaned."""
    return hash(listed.last_error)


def _of_unknown_blob(listed: ListedMachine) -> str:
    shape = listed.shape
    return plain_words(
        listed.last_error, {listed.id, listed.host, listed.cluster, shape.provider, shape.instance_type, shape.zone}
    )
