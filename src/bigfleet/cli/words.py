"""Words for what the wire has codes for: reasons, outcomes, constraints, penalties, capacity types, money.

For people only; programs are given the codes themselves. A code without words is a defect that a test finds, and is
shown with its underscores as spaces until then.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from bigfleet.model.amounts import spoken_amounts, spoken_name
from bigfleet.model.machine import CapacityType
from bigfleet.model.names import HOSTNAME_LABEL, INSTANCE_TYPE_LABEL, ZONE_LABEL
from bigfleet.model.penalty import PINNED, told_dollars
from bigfleet.model.requirement import Operator
from bigfleet.model.spread import WhenUnsatisfiable
from bigfleet.wire import capacity_pb2, shardread_pb2

_KEYS = {ZONE_LABEL: "zone", INSTANCE_TYPE_LABEL: "instance type", HOSTNAME_LABEL: "host"}

# Why an action was decided; the codes are those of the audit log.
ACTION_REASONS = {
    "phase1.idle": "a free machine fits",
    "phase1.speculative": "nothing free fits",
    "phase2.inversion": "higher priority needs it",
    "phase3.excess": "nothing uses it",
    "phase3.release": "idle for long enough",
    "phase1.reopen": "a closing node has room",
    "phase1.empty": "another cluster has it empty",
    "phase3.never_ready": "its node never became ready",
    "phase3.close": "its pods would be cheaper elsewhere",
    "phase3.move": "moved to something cheaper",
    "provider.interruption": "its host will be taken away",
    "coordinator.cross_shard_drain": "another shard needs it more",
    "admin.forgotten": "its cluster was forgotten",
}
_REASON = re.compile("|".join(map(re.escape, ACTION_REASONS)))

UNMET_REASONS = {
    shardread_pb2.UNMET_REASON_UNSPECIFIED: "-",
    shardread_pb2.UNMET_REASON_PRIORITY_STARVED: "what fits serves equal or higher priorities",
    shardread_pb2.UNMET_REASON_NO_MATCHING_SUPPLY: "no machine fits",
    shardread_pb2.UNMET_REASON_TOPOLOGY_UNSATISFIABLE: "no domain has room for the group",
    shardread_pb2.UNMET_REASON_PREEMPTION_EXHAUSTED: "nothing left to preempt",
    shardread_pb2.UNMET_REASON_RESOURCE_NOT_PUBLISHED: "no machine has the resource",
    shardread_pb2.UNMET_REASON_SPREAD_UNSATISFIABLE: "would break its spread",
    shardread_pb2.UNMET_REASON_CLUSTER_DISCONNECTED: "cluster not connected",
    shardread_pb2.UNMET_REASON_ACQUISITION_HELD: "acquisition is held",
    shardread_pb2.UNMET_REASON_SUPPLY_BACKED_OFF: "machines rest after failures",
    shardread_pb2.UNMET_REASON_AWAITING_DRAIN: "waits for a drain",
    shardread_pb2.UNMET_REASON_BOOTSTRAP_FAILED: "operator gives no user data",
    shardread_pb2.UNMET_REASON_FRAGMENTATION: "free space is in pieces too small",
    shardread_pb2.UNMET_REASON_AWAITING_NODE: "waits for a node to appear",
    shardread_pb2.UNMET_REASON_RISK_TOO_HIGH: "interrupted too often for it",
    shardread_pb2.UNMET_REASON_NOT_BELIEVED: "its cluster contradicts itself",
    shardread_pb2.UNMET_REASON_DID_NOT_HELP: "kinds that fit were tried and did not help",
    shardread_pb2.UNMET_REASON_EXCLUSIVE: "one per node, and nodes with room have one",
    shardread_pb2.UNMET_REASON_ROW_REFUSED: "its row is refused: what it says cannot be true",
}

# What helps where no change of supply or demand does.
REMEDIES = {
    shardread_pb2.UNMET_REASON_AWAITING_DRAIN: "none needed: machines are being drained for it",
    shardread_pb2.UNMET_REASON_CLUSTER_DISCONNECTED: "connect its cluster's operator; until then it gets nothing new",
    shardread_pb2.UNMET_REASON_ACQUISITION_HELD: "none needed once providers have listed; /readyz names those missing",
    shardread_pb2.UNMET_REASON_SUPPLY_BACKED_OFF: "none needed: they are tried again; `actions` tells why they failed",
    shardread_pb2.UNMET_REASON_BOOTSTRAP_FAILED: "repair the bootstrap template of its cluster's operator",
    shardread_pb2.UNMET_REASON_AWAITING_NODE: "none needed: its machines are under way",
    shardread_pb2.UNMET_REASON_DID_NOT_HELP: "find out why its pods did not run on the machines `actions` names",
    shardread_pb2.UNMET_REASON_NOT_BELIEVED: "repair its cluster's operator: nodes have what it says has no room",
    shardread_pb2.UNMET_REASON_ROW_REFUSED: "repair its cluster's operator: nothing is done for such a row",
}

NOT_AS_OFFERED = "repair the offering at its provider, or its listing: machines of it arrive as something else"

# What it means that a search found no change.
SEARCHES = {
    shardread_pb2.REMEDY_SEARCH_UNSPECIFIED: "no single change would satisfy it",
    shardread_pb2.REMEDY_SEARCH_NOT_NEEDED: "none needed: its machines are under way",
    shardread_pb2.REMEDY_SEARCH_DRAINING: "none needed: machines are being drained for it",
    shardread_pb2.REMEDY_SEARCH_EXHAUSTED: "no single change would satisfy it: all were tried",
    shardread_pb2.REMEDY_SEARCH_GAVE_UP: "none found in {trials} trials; there was more to try",
}

# How an action ended; the codes are those of the metrics and the audit log.
OUTCOMES = {
    "success": "success",
    "cancelled": "taken back",
    "refused": "refused by its operator",
    "suppressed": "held: paused",
    "dryrun": "dry run",
    "inventory_miss": "machine was gone",
    "missing_profile": "demand was gone",
    "stale_state": "overtaken",
    "no_session": "operator was away",
    "blob_error": "no user data",
    "ctx_canceled": "timed out",
    "fenced": "another shard acts on it",
    "provider_error": "provider error",
    "sold_out": "sold out",
    "transition_error": "provider went back on it",
    "transition_raced_to_idle": "fell back to Idle",
}
SOURCES = {
    "credited": "serving",
    "idle": "free, being bound",
    "speculative": "being bought",
    "held": "would be taken, but rails hold it",
    "barred": "waits: nothing is asked of its provider",
    "preempted": "being taken from lower priority",
}


def amounts(resources: Mapping[str, str]) -> str:
    return spoken_amounts(resources) or "-"


def units(view: shardread_pb2.NeedView, until: str = "") -> str:
    """Where the units of a need are: `9 wanted: 5 run, 1 has room, 3 stranded (2 are coming until …, 1 is missing)`."""
    parts = view.units
    now = ("gets a machine now", "get machines now")
    if view.barred:
        now = ("waits for its provider", "wait for their provider")
    elif view.held:
        now = ("would get a machine", "would get machines")
    drains = ("waits for a drain", "wait for a drain")
    if view.held and view.preemption.victims_found:
        drains = ("would get a machine drained for it", "would get machines drained for them")
    placed = _told((parts.running, "runs", "run"), (parts.room, "has room", "have room"))
    till = f" until {until}" if until else ""
    waiting = _told(
        (parts.coming, f"is coming{till}", f"are coming{till}"),
        (parts.acquired, *now),
        (parts.awaiting, *drains),
        (parts.missing, "is missing", "are missing"),
    )
    if parts.stranded:
        how = f" ({', '.join(waiting)})" if waiting else ""
        placed.append(f"{parts.stranded} stranded{how}")
    return f"{parts.count} wanted: {', '.join(placed)}" if placed else f"{parts.count} wanted"


def _told(*parts: tuple[int, str, str]) -> list[str]:
    """`1 runs`, `8 run`: those there are any of."""
    return [f"{number} {one if number == 1 else several}" for number, one, several in parts if number]


def with_reasons_in_words(text: str) -> str:
    """A sentence of a story, which may carry the code of a reason."""
    return _REASON.sub(lambda found: ACTION_REASONS[found.group()], text)


def outcome(code: str) -> str:
    return OUTCOMES.get(code, code.replace("_", " "))


def outcome_code(words: str) -> str:
    """The code of an outcome that was typed as it is shown, or as a code."""
    return {shown: code for code, shown in OUTCOMES.items()}.get(words, words)


def unmet_reason(code: int) -> str:
    known = UNMET_REASONS.get(shardread_pb2.UnmetReason.ValueType(code))
    return known if known is not None else f"reason {code}"


def evictions_left(pods: int) -> str:
    """How many pods may still be moved; below 0 some were lent."""
    if pods > 0:
        return str(pods)
    lent = f", {-pods} lent" if pods else ""
    return f"none{lent}: nodes in use are not emptied"


def without_remedy(explanation: shardread_pb2.NeedExplanation) -> str:
    """What to say where no change was found that would satisfy a need."""
    search = explanation.search
    if any(each.beside_overhead for each in explanation.lost):
        return "machines with room for a unit beside what its cluster runs on every node, or less of that"
    if explanation.need.failed_machines:
        return "repair what has failed, or more machines that match"
    if search == shardread_pb2.REMEDY_SEARCH_DRAINING or explanation.need.unmet_reason not in REMEDIES:
        said = SEARCHES.get(search, SEARCHES[shardread_pb2.REMEDY_SEARCH_UNSPECIFIED])
        return said.format(trials=explanation.trials)
    return remedy(explanation.need)


def remedy(view: shardread_pb2.NeedView) -> str:
    """What helps a need whose reason is one of `REMEDIES`."""
    unhelped = view.unmet_reason == shardread_pb2.UNMET_REASON_DID_NOT_HELP
    return NOT_AS_OFFERED if unhelped and view.not_as_offered else REMEDIES[view.unmet_reason]


def why(view: shardread_pb2.NeedView, away: str = "") -> str:
    """Why a need has not got everything, or got it from something dearer; `away`: since when nobody speaks for it."""
    said = [] if view.satisfied else [view.detail or unmet_reason(view.unmet_reason)]
    if waits_for_rails(view) or (
        view.sold_out and not view.detail and view.unmet_reason == shardread_pb2.UNMET_REASON_SUPPLY_BACKED_OFF
    ):
        said = []
    said = [f"nothing is asked of {name}" for name in _barred(view)] or said
    said = [view.held, *said] if view.held else said
    said += [f"sold out: {kind}" for kind in view.sold_out]
    said += [f"said before {away}: its operator is not connected since then"] if away else []
    return "; ".join(said) or "-"


def waits_for_rails(view: shardread_pb2.NeedView) -> bool:
    """Whether it would get all it lacks, if somebody let things be done."""
    return bool(view.held) and view.unmet_reason == shardread_pb2.UNMET_REASON_ACQUISITION_HELD


def decided(count: int, held: str) -> str:
    """Machines that are being taken: `1`, or `0 (1 held)` while rails hold what was decided."""
    return f"0 ({count} held)" if held and count else str(count)


def while_barred(view: shardread_pb2.NeedView) -> str:
    """What helps a need whose machines are at a provider that nothing is asked of."""
    return f"until {' and '.join(_barred(view))} can be asked again, as said here: machines of other providers"


def _barred(view: shardread_pb2.NeedView) -> list[str]:
    """Providers that nothing is asked of although the need's machines would be theirs."""
    return [each.partition(": ")[0] for each in view.barred]


def capacity_type(number: int) -> str:
    known = {int(kind) for kind in CapacityType}
    return CapacityType(number).name.replace("_", " ").lower() if number in known else f"kind {number}"


def key(label: str) -> str:
    """A label key or a resource; the well-known ones by the word everybody uses."""
    return _KEYS.get(label) or spoken_name(label)


def dollars(amount: float) -> str:
    """A price; cents from a dollar on, and enough digits below."""
    if amount == 0:
        return "$0"
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.3g}"


def price(amount: float, kind: str) -> str:
    """What one machine costs while it is used; what is owned or reserved has been paid for either way."""
    owned = amount == 0 and kind in ("bare metal", "reserved")
    return "already paid" if owned else f"{dollars(amount)}/h each"


def constraints(need: capacity_pb2.CapacityNeed) -> str:
    """What a need asks of its machines besides their size; empty for nothing."""
    phrases = [requirement(each.key, int(each.operator), each.values) for each in need.requirements]
    phrases += [spread(each.topology_key, each.max_skew, int(each.when_unsatisfiable)) for each in need.spread]
    phrases += ["one per node"] if need.exclusive else []
    phrases += [_toleration(each) for each in need.tolerations]
    return "; ".join(phrases)


def penalties(need: capacity_pb2.CapacityNeed) -> str:
    """What disturbing the need costs its owner, as far as they said."""
    told = (
        ("an interruption", int(need.interruption_penalty_bucket), need.interruption_microdollars),
        ("a reclaim", int(need.reclamation_penalty_bucket), 0),
    )
    said = []
    for what, bucket, finer in told:
        if bucket == PINNED:
            said.append(f"{what} must not happen")
        elif (most := told_dollars(bucket, finer)) > 0:
            said.append(f"{what} costs up to {dollars(most)}")
    return ", ".join(said)


def constraint(text: str, need: capacity_pb2.CapacityNeed) -> str:
    """One of the need's own constraints, given in the form it has in fingerprints."""
    for each in need.requirements:
        if text == f"{each.key}:{int(each.operator)}:{','.join(each.values)};":
            return requirement(each.key, int(each.operator), each.values)
    for over in need.spread:
        if text == f"{over.topology_key}:{over.max_skew}:{int(over.when_unsatisfiable)};":
            return spread(over.topology_key, over.max_skew, int(over.when_unsatisfiable))
    return text.removesuffix(";")


def requirement(label: str, operator: int, values: Iterable[str]) -> str:
    name, listed = key(label), [value or "''" for value in values]
    one_of = f"{'is' if len(listed) == 1 else 'is one of'} {', '.join(listed)}"
    match operator:
        case Operator.IN:
            return f"{name} {one_of}"
        case Operator.NOT_IN:
            return f"{name} is not {' or '.join(listed)}"
        case Operator.EXISTS:
            return f"{name} is set"
        case Operator.DOES_NOT_EXIST:
            return f"{name} is not set"
        case Operator.SAME:
            return f"all in one {name}" + (f", which {one_of}" if listed else "")
    return f"{name} {', '.join(listed)}".rstrip()


def spread(label: str, skew: int, when: int) -> str:
    strictly = "" if when == WhenUnsatisfiable.DO_NOT_SCHEDULE else " if possible"
    return f"spread over {key(label)} by at most {max(1, skew)}{strictly}"


def _toleration(each: capacity_pb2.Toleration) -> str:
    value = f"={each.value}" if each.value else ""
    effect = f":{each.effect}" if each.effect else ""
    return f"tolerates {each.key or 'everything'}{value}{effect}"
