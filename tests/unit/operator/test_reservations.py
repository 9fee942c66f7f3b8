"""Tolerations given to pods: what is left of a pod, of a refusal, and of an operator that may not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, cast

import msgspec
import pytest

from bigfleet.model.names import KEPT_TAINT
from bigfleet.operator.kube.client import ApiError, Client
from bigfleet.operator.kube.objects import Pod
from bigfleet.operator.shell import reservations
from bigfleet.operator.shell.metrics import OperatorMetrics
from bigfleet.operator.shell.reservations import Reservations

THEIRS = {"key": "theirs", "operator": "Exists"}


class Api:
    """An API server with pods of one namespace by name: applies JSON patches as RFC 6902 has them, or refuses."""

    def __init__(self, **pods: dict[str, Any]) -> None:
        self.pods = pods
        self.refuses: Callable[[str], int] = lambda name: 0
        self.allowed = True
        self.reviews = 200
        self.asked: list[str] = []

    async def patch(self, path: str, body: list[dict[str, Any]], kind: str) -> bytes:
        assert kind == "application/json-patch+json"
        name = path.rpartition("/")[2]
        assert path == f"/api/v1/namespaces/shop/pods/{name}"
        self.asked.append(name)
        if status := self.refuses(name):
            raise ApiError(status, "Reason", "because")
        if name not in self.pods:
            raise ApiError(404, "NotFound", name)
        pod = json.loads(json.dumps(self.pods[name]))
        for step in body:
            self._step(pod, **step)
        self.pods[name] = pod
        return b"{}"

    def _step(self, pod: dict[str, Any], op: str, path: str, value: Any) -> None:
        *way, last = path.removeprefix("/").split("/")
        at: Any = pod
        for key in way:
            if key not in at:
                raise ApiError(422, "Invalid", f"no {key}")
            at = at[key]
        if op == "test" and at.get(last) != value:
            raise ApiError(422, "Invalid", f"{path} is not {value}")
        if op == "add" and isinstance(at, list):
            assert last == "-"
            at.append(value)
        elif op == "add":
            at[last] = value

    async def create(self, path: str, body: dict[str, Any]) -> bytes:
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert body["spec"] == {"resourceAttributes": {"verb": "patch", "resource": "pods"}}
        self.asked.append("right")
        if self.reviews != 200:
            raise ApiError(self.reviews, "Reason", "because")
        return json.dumps({"status": {"allowed": self.allowed}}).encode()


def pod(uid: str, *tolerations: dict[str, Any]) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "web:1", "resources": {"requests": {"cpu": "1"}}}]}
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": uid},
        "spec": {**spec, **({"tolerations": list(tolerations)} if tolerations else {})},
    }


def ours(node: str) -> dict[str, str]:
    return {"key": KEPT_TAINT, "operator": "Equal", "value": node, "effect": "NoSchedule"}


class Desk:
    """The part of the operator that gives tolerations, in front of an API server."""

    def __init__(self, api: Api) -> None:
        self.metrics = OperatorMetrics()
        self.may: list[bool] = []
        keys = {entry["metadata"]["uid"]: f"shop/{name}" for name, entry in api.pods.items()}
        self.desk = Reservations(cast(Client, api), keys.get, self.metrics, self.may.append)

    def play(self, script: Callable[[Reservations], Coroutine[Any, Any, None]]) -> None:
        async def run() -> None:
            work = asyncio.create_task(self.desk.work.run())
            await script(self.desk)
            await self.rest()
            work.cancel()

        asyncio.run(run())

    async def rest(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)
        assert self.desk.work.idle

    def counted(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("bigfleet_operator_reservations_total", {"outcome": outcome}) or 0

    @property
    def reserves(self) -> float | None:
        return self.metrics.registry.get_sample_value("bigfleet_operator_reserves_nodes")


@pytest.mark.parametrize("theirs", [[THEIRS], []])
def test_a_pod_gets_the_toleration_beside_those_it_has_and_nothing_else_of_it_is_changed(theirs: list[Any]) -> None:
    api = Api(web=pod("u", *theirs))
    before = json.loads(json.dumps(api.pods["web"]))
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        for _ in range(3):
            desk.show([("m-1", ("u",)), ("m-2", ("u",))])
            await seat.rest()

    seat.play(script)
    assert api.pods["web"]["spec"].pop("tolerations") == [*theirs, ours("m-1"), ours("m-2")], "once each"
    before["spec"].pop("tolerations", None)
    assert api.pods["web"] == before
    assert seat.counted("accepted") == 1


def test_a_pod_of_the_same_name_that_came_after_it_is_not_touched() -> None:
    api = Api(web=pod("u", THEIRS))
    seat = Desk(api)
    api.pods["web"] = pod("another", THEIRS)

    async def script(desk: Reservations) -> None:
        desk.show([("m-1", ("u",))])

    seat.play(script)
    assert api.pods["web"] == pod("another", THEIRS)


@pytest.mark.parametrize(("status", "outcome"), [(404, "gone"), (409, "changed"), (422, "refused")])
def test_what_one_pod_is_refused_concerns_that_pod_only(status: int, outcome: str) -> None:
    api = Api(stubborn=pod("u", THEIRS), web=pod("v", THEIRS))
    api.refuses = lambda name: status if name == "stubborn" else 0
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        for _ in range(3):
            desk.show([("m-1", ("u", "v"))])
            await seat.rest()

    seat.play(script)
    assert api.pods["stubborn"] == pod("u", THEIRS)
    assert api.pods["web"]["spec"]["tolerations"] == [THEIRS, ours("m-1")]
    assert seat.counted(outcome) == 1, "it is not asked again and again"
    assert seat.may == []


def test_a_server_that_is_busy_is_asked_again() -> None:
    api = Api(web=pod("u", THEIRS))
    api.refuses = lambda name: 429 if len(api.asked) < 3 else 0
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        desk.show([("m-1", ("u",))])
        await asyncio.sleep(0.5)

    seat.play(script)
    assert api.pods["web"]["spec"]["tolerations"] == [THEIRS, ours("m-1")]


def test_a_node_that_opened_meanwhile_is_no_reason_to_touch_a_pod() -> None:
    api = Api(web=pod("u", THEIRS))
    api.refuses = lambda name: 500 if len(api.asked) < 2 else 0
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        desk.show([("m-1", ("u",))])
        await seat.rest()
        desk.show([])
        await asyncio.sleep(0.3)

    seat.play(script)
    assert api.pods["web"] == pod("u", THEIRS)


def test_an_operator_that_may_not_patch_pods_knows_it_before_a_node_is_reserved() -> None:
    api = Api(web=pod("u", THEIRS))
    api.allowed = False
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        desk.begin()
        await seat.rest()
        desk.show([("m-1", ("u",))])

    seat.play(script)
    assert (seat.may, seat.reserves) == ([False], 0)
    assert api.asked == ["right"], "no pod was tried"


@pytest.mark.parametrize("reviews", [200, 403])
def test_a_right_that_is_taken_away_is_missed_at_the_first_patch_and_asked_for_again_later(
    reviews: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the server answers what we may, or will not even be asked."""
    monkeypatch.setattr(reservations, "ASK_AGAIN_SECONDS", 0.3)
    api = Api(web=pod("u", THEIRS), job=pod("v", THEIRS))
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        desk.begin()
        await seat.rest()
        assert (seat.may, seat.reserves) == ([], 1)
        api.allowed, api.reviews, api.refuses = False, reviews, lambda name: 403
        desk.show([("m-1", ("u",))])
        await seat.rest()
        assert (seat.may, seat.reserves) == ([False], 0)
        tried = len(api.asked)
        desk.show([("m-2", ("v",))])
        await seat.rest()
        assert len(api.asked) == tried, "nothing more until it is time"
        api.allowed, api.refuses = True, lambda name: 0
        await asyncio.sleep(0.4)
        assert (seat.may, seat.reserves) == ([False, True], 1)
        desk.show([("m-2", ("v",))])

    seat.play(script)
    assert api.pods["job"]["spec"]["tolerations"] == [THEIRS, ours("m-2")]
    assert seat.counted("forbidden") == 1


def test_somebodys_admission_that_forbids_one_pod_is_no_missing_right() -> None:
    api = Api(guarded=pod("u", THEIRS), web=pod("v", THEIRS))
    api.refuses = lambda name: 403 if name == "guarded" else 0
    seat = Desk(api)

    async def script(desk: Reservations) -> None:
        desk.show([("m-1", ("u",))])
        await seat.rest()
        desk.show([("m-1", ("u", "v"))])

    seat.play(script)
    assert seat.may == []
    assert api.pods["web"]["spec"]["tolerations"] == [THEIRS, ours("m-1")]
    assert api.asked.count("guarded") == 1


def test_a_pod_is_not_asked_again_for_what_it_shows() -> None:
    """After a restart, or when a plan changes and changes back: tolerations would pile up on it."""
    api = Api(web=pod("u", THEIRS))
    first, second = Desk(api), Desk(api)

    async def before(desk: Reservations) -> None:
        desk.show([("m-1", ("u",))])
        await first.rest()
        desk.seen("shop/web", msgspec.convert(api.pods["web"], Pod))
        desk.show([])
        desk.show([("m-1", ("u",))])

    async def after(desk: Reservations) -> None:
        desk.seen("shop/web", msgspec.convert(api.pods["web"], Pod))
        desk.show([("m-1", ("u",)), ("m-2", ("u",))])

    first.play(before)
    assert api.pods["web"]["spec"]["tolerations"] == [THEIRS, ours("m-1")]
    second.play(after)
    assert api.pods["web"]["spec"]["tolerations"] == [THEIRS, ours("m-1"), ours("m-2")]
