"""How things end, by the words that metrics, logs, the audit log and read calls have for it: they are a contract."""

from __future__ import annotations

from enum import StrEnum


class Outcome(StrEnum):
    """How an operation ended."""

    SUCCESS = "success"
    CANCELLED = "cancelled"
    """A drain taken back: demand returned, or the operator called it off."""
    REFUSED = "refused"
    """The cluster has no room for the pods of a machine it was asked, not told, to give up."""
    PROVIDER_ERROR = "provider_error"
    FENCED = "fenced"
    TIMED_OUT = "ctx_canceled"
    RACED_TO_IDLE = "transition_raced_to_idle"
    TRANSITION_ERROR = "transition_error"
    STALE = "stale_state"
    """The world moved on before the provider was asked."""
    NO_SESSION = "no_session"
    BLOB_ERROR = "blob_error"
    SUPPRESSED = "suppressed"
    """The kill switch was on."""
    DRY_RUN = "dryrun"
    UNKNOWN_MACHINE = "inventory_miss"
    UNKNOWN_PROFILE = "missing_profile"


class Level(StrEnum):
    """How loud a log line is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
