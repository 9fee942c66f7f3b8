"""Members of the enums that every operation meets many times, by plain names.

Python 3.11 takes several times as long to find a member on its class as to read a name, and an operation does so some
fifty times. Rare paths spell the class out.
"""

from __future__ import annotations

from typing import Final

from bigfleet.engine.results import ActionKind, Disposition
from bigfleet.model.machine import MachineState
from bigfleet.shard.contract.events import CallKind
from bigfleet.shard.core.state.operations import Stage

# States of a machine.
SPECULATIVE: Final = MachineState.SPECULATIVE
CREATING: Final = MachineState.CREATING
IDLE: Final = MachineState.IDLE
CONFIGURING: Final = MachineState.CONFIGURING
CONFIGURED: Final = MachineState.CONFIGURED
DRAINING: Final = MachineState.DRAINING
DELETING: Final = MachineState.DELETING
FAILED: Final = MachineState.FAILED

# Stages of an operation.
QUEUED: Final = Stage.QUEUED
CALLING: Final = Stage.CALLING
AWAITING: Final = Stage.AWAITING
BLOB: Final = Stage.BLOB
EVICTING: Final = Stage.EVICTING
DONE: Final = Stage.DONE

# Calls of a provider.
CREATE: Final = CallKind.CREATE
CONFIGURE: Final = CallKind.CONFIGURE
DRAIN: Final = CallKind.DRAIN
DELETE: Final = CallKind.DELETE

# Decisions.
BOOTSTRAP: Final = ActionKind.BOOTSTRAP
PROVISION: Final = ActionKind.PROVISION
RECLAIM: Final = ActionKind.RECLAIM
EMIT: Final = Disposition.EMIT
