"""Which provider failures are tried again, how long the pauses are, and that no retry outlives its budget."""

from __future__ import annotations

import pytest

from bigfleet.provider.client.errors import ProviderError, error_for
from bigfleet.provider.client.retry import NO_RETRY, RetryPolicy, may_retry, pause_before_retry

EVERY_CODE = {
    "CANCELLED": ("refused", False),
    "UNKNOWN": ("refused", False),
    "INVALID_ARGUMENT": ("invalid", False),
    "DEADLINE_EXCEEDED": ("timeout", True),
    "NOT_FOUND": ("not_found", False),
    "ALREADY_EXISTS": ("refused", False),
    "PERMISSION_DENIED": ("denied", False),
    "UNAUTHENTICATED": ("denied", False),
    "RESOURCE_EXHAUSTED": ("rate_limited", True),
    "FAILED_PRECONDITION": ("fenced", False),
    "ABORTED": ("refused", True),
    "OUT_OF_RANGE": ("invalid", False),
    "UNIMPLEMENTED": ("unimplemented", False),
    "INTERNAL": ("refused", False),
    "UNAVAILABLE": ("unavailable", True),
    "DATA_LOSS": ("refused", False),
}


def failure(code: str, detail: str = "no") -> ProviderError:
    return error_for("aws", "Create", code, detail, machine_id="m-1")


@pytest.mark.parametrize(("code", "expected"), EVERY_CODE.items())
def test_every_status_code_has_one_meaning_and_one_retry_rule(code: str, expected: tuple[str, bool]) -> None:
    error = failure(code)
    assert (error.outcome, may_retry(error)) == expected


def test_a_fenced_call_is_never_repeated_whatever_the_policy() -> None:
    policy = RetryPolicy(attempts=100)
    fenced = failure("FAILED_PRECONDITION")
    assert pause_before_retry(policy, fenced, attempt=1, elapsed=0.0, budget=1e9, draw=0.0) is None


def pauses(code: str, policy: RetryPolicy, draw: float = 0.0) -> list[float | None]:
    return [
        pause_before_retry(policy, failure(code), attempt=number, elapsed=0.0, budget=1e9, draw=draw)
        for number in range(1, policy.attempts + 1)
    ]


def test_pauses_double_up_to_the_longest_and_end_with_the_attempts() -> None:
    policy = RetryPolicy(attempts=6, first_pause=1.0, growth=2.0, longest_pause=5.0)
    assert pauses("UNAVAILABLE", policy) == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_a_provider_that_asks_for_fewer_calls_gets_four_times_the_pause() -> None:
    policy = RetryPolicy(attempts=4, first_pause=1.0, longest_pause=10.0)
    assert pauses("RESOURCE_EXHAUSTED", policy) == [4.0, 8.0, 10.0, None]


def test_jitter_takes_away_at_most_its_share() -> None:
    policy = RetryPolicy(attempts=2, first_pause=1.0, jitter=0.5)
    assert pauses("UNAVAILABLE", policy, draw=0.0)[0] == 1.0
    assert pauses("UNAVAILABLE", policy, draw=0.999)[0] == pytest.approx(0.5005)


def test_no_retry_is_started_that_the_budget_cannot_hold() -> None:
    policy = RetryPolicy(attempts=9, first_pause=1.0)
    error = failure("UNAVAILABLE")
    assert pause_before_retry(policy, error, attempt=1, elapsed=28.9, budget=30.0, draw=0.0) == 1.0
    assert pause_before_retry(policy, error, attempt=1, elapsed=29.0, budget=30.0, draw=0.0) is None


def test_no_retry_means_one_attempt() -> None:
    assert pauses("UNAVAILABLE", NO_RETRY) == [None]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attempts": 0}, "attempts is 0"),
        ({"first_pause": -1.0}, "pauses run from -1.0"),
        ({"longest_pause": 0.1}, "to 0.1 s"),
        ({"growth": 0.5}, "growth is 0.5"),
        ({"jitter": 2.0}, "jitter is 2.0"),
    ],
)
def test_a_policy_that_cannot_work_is_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RetryPolicy(**fields)  # type: ignore[arg-type]


def test_an_answer_that_does_not_fit_is_not_a_request_to_slow_down() -> None:
    error = failure("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (300 vs. 200)")
    assert error.outcome == "too_large"
    assert not may_retry(error)


def test_errors_name_provider_method_machine_and_code_but_never_the_secret() -> None:
    secret = b"#cloud-config token=hunter2"
    error = error_for(
        "aws", "Configure", "INTERNAL", f"hook failed on {secret.decode()}", machine_id="m-1", secret=secret
    )
    assert (
        str(error)
        == "provider aws: Configure of machine m-1 answered INTERNAL: hook failed on [bootstrap blob removed]"
    )
    assert "hunter2" not in repr(error)
    assert "hunter2" not in error_for("aws", "Configure", "INTERNAL", secret.hex(), secret=secret).detail


def test_a_provider_cannot_flood_our_logs_with_its_error() -> None:
    assert len(failure("INTERNAL", "x" * 1_000_000).detail) == 500
