"""Pods that become old are counted once, where they stand: what may be evicted is a share of them."""

from __future__ import annotations

from bigfleet.operator.core.mirror import facts as f
from bigfleet.operator.core.mirror.mirror import Mirror
from tests.unit.operator.core.test_mirror import MINUTE, node, shape


def seen(uid: str, where: str, since: int, of: f.PodShape | None = None) -> f.PodSeen:
    return f.PodSeen(uid, of or shape(), where, since)


def matured(mirror: Mirror, now: int) -> dict[str, int]:
    mirror.settle(now)
    return {report.node_name: report.matured for report in mirror.reports(anew=True)}


def test_a_pod_counts_once_when_it_is_a_quarter_of_an_hour_old() -> None:
    mirror = Mirror()
    mirror.apply([node("n"), seen("a", "n", 0), seen("b", "n", 5 * MINUTE)])
    assert matured(mirror, 15 * MINUTE - 1) == {"n": 0}
    assert matured(mirror, 15 * MINUTE) == {"n": 1}
    assert matured(mirror, 20 * MINUTE) == {"n": 2}
    assert matured(mirror, 300 * MINUTE) == {"n": 2}


def test_pods_that_end_young_count_for_nothing_however_many_take_their_place() -> None:
    mirror = Mirror()
    mirror.apply([node("n"), seen("p0", "n", 0)])
    for number in range(1, 100):
        mirror.apply([f.PodGone(f"p{number - 1}"), seen(f"p{number}", "n", number * MINUTE)])
        assert matured(mirror, number * MINUTE) == {"n": 0}


def test_pods_that_replace_others_between_two_looks_count_each() -> None:
    mirror = Mirror()
    mirror.apply([node("n"), seen("p0", "n", 0)])
    for number in range(1, 11):
        now = number * 20 * MINUTE
        mirror.settle(now)
        mirror.apply([f.PodGone(f"p{number - 1}"), seen(f"p{number}", "n", now)])
    assert matured(mirror, 200 * MINUTE) == {"n": 10}, "one pod ran at every instant, and it was never the same"


def test_daemons_waiting_pods_and_pods_elsewhere_do_not_count() -> None:
    mirror = Mirror()
    daemon = shape(app="d", origin=f.Origin.DAEMON)
    mirror.apply([node("n"), node("theirs", ours=False), seen("d", "n", 0, daemon), seen("x", "theirs", 0)])
    mirror.apply([seen("w", "", 0, shape(64_000))])
    assert matured(mirror, 60 * MINUTE) == {"n": 0}


def test_what_only_became_older_is_told_without_another_change() -> None:
    mirror = Mirror()
    mirror.apply([node("n"), seen("a", "n", 0)])
    mirror.settle(0)
    mirror.reports()
    due = mirror.next_timer()
    assert due == 15 * MINUTE
    mirror.settle(due)
    told = mirror.reports()
    assert [report.matured for report in told] == [1]


class Unsorted(str):
    """A name that must not be put in an order."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        raise AssertionError("pods that become old together were sorted: with very many the look takes a second")


def test_pods_of_the_same_second_become_old_together_without_being_sorted() -> None:
    mirror = Mirror()
    mirror.apply([node("n"), *(seen(Unsorted(f"p{number}"), "n", 0) for number in range(20))])
    assert matured(mirror, 15 * MINUTE - 1) == {"n": 0}
    assert matured(mirror, 15 * MINUTE) == {"n": 20}
