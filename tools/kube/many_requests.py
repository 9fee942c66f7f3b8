"""How much an operator needs for very many requests and pods: time of a roll-up, memory, rows.

    python -m tools.kube.many_requests --json docs/evidence/kube-many-requests.json

Objects come as the JSON of a watch that is made up, through the operator's own list-watch, decoding, view, mirror and
codec: first a list, then changes, at last a list anew because the version is too old (410). Times are the process's own
(the machine is shared); wall times stand beside them. Memory is the highest of all that. Every size runs in a process
of its own, so that memory is that size's alone.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from bigfleet.crd.capacity_request import CapacityRequest
from bigfleet.operator.core.mirror.mirror import Mirror
from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.listwatch import ListWatch
from bigfleet.operator.kube.objects import Node, Pod
from bigfleet.operator.pods.rule import request_for
from bigfleet.operator.reading.view import ClusterView
from bigfleet.operator.reading.watches import Told
from bigfleet.operator.report_codec import rollup_to_wire

ROLLUPS = 40
LIMITS = {
    "25,000": {"cold_ms": 400.0, "changed_p99_ms": 100.0, "memory_mb": 250.0},
    "250,000": {"memory_mb": 750.0},
}
_PODS = msgspec.json.Decoder(Pod)
SIZES = ("500m", "1", "2", "4")


class Feed:
    """A watch of one kind: everything there is, then what is put into `later`."""

    def __init__(self, everything: Callable[[], Iterator[bytes]]) -> None:
        self._everything = everything
        self.later: asyncio.Queue[bytes] = asyncio.Queue()
        self.lists = 0

    async def lines(self) -> AsyncIterator[bytes]:
        for document in self._everything():
            yield _line("ADDED", document)
        end = {"metadata": {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}}
        yield _line("BOOKMARK", msgspec.json.encode(end))
        self.lists += 1
        while True:
            line = await self.later.get()
            yield line
            # Whoever asks for the next one has dealt with this one.
            self.later.task_done()


class FedClient:
    """Serves watches out of feeds, by path."""

    def __init__(self, feeds: Mapping[str, Feed]) -> None:
        self._feeds = feeds

    @asynccontextmanager
    async def stream(self, path: str, parameters: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        assert parameters.get("sendInitialEvents") == "true", "nothing here ends a watch but a 410"
        yield self._feeds[path].lines()


async def measure(count: int, templates: int = 20, rollups: int = ROLLUPS) -> dict[str, Any]:
    """`count` pods of so many templates on nodes, each with its request; then 1 % of them replaced again and again."""
    view = ClusterView(lambda *_: None)
    per_node = 50
    for number in range(count // per_node + 1):
        view.node_seen(_node(number))
    lives = [0] * count

    def pod(number: int) -> bytes:
        return _pod(number, lives[number], templates, f"n{number // per_node}")

    feeds = {
        "pods": Feed(lambda: (pod(number) for number in range(count))),
        "requests": Feed(lambda: (_request(pod(number)) for number in range(count))),
    }
    client = cast(Client, FedClient(feeds))
    watches: list[ListWatch[Any]] = [
        ListWatch(client, "pods", Pod, Told(view.pod_seen, view.pod_gone)),
        ListWatch(client, "requests", CapacityRequest, Told(view.request_seen, view.request_gone)),
    ]

    def say(kind: str, number: int) -> None:
        document = pod(number)
        feeds["pods"].later.put_nowait(_line(kind, document))
        feeds["requests"].later.put_nowait(_line(kind, _request(document)))

    began = time.process_time()
    running = [asyncio.create_task(watch.run()) for watch in watches]
    for watch in watches:
        await watch.complete.wait()
    read = time.process_time() - began
    mirror = Mirror()
    gc.collect()
    gc.freeze()
    began = time.process_time()
    mirror.apply(view.take())
    applied = time.process_time() - began
    cold, rows, size = _rollup(mirror, 1)
    listed = _highest()
    changed: list[float] = []
    walls: list[float] = []
    step = max(1, count // 100)
    for turn in range(rollups):
        for number in range(turn * step % count, min(count, turn * step % count + step)):
            say("DELETED", number)
            lives[number] += 1
            say("ADDED", number)
        for feed in feeds.values():
            await feed.later.join()
        began, wall = time.process_time(), time.perf_counter()
        mirror.apply(view.take())
        _, rows, size = _rollup(mirror, turn + 2)
        changed.append((time.process_time() - began) * 1000)
        walls.append((time.perf_counter() - wall) * 1000)
    for feed in feeds.values():
        feed.later.put_nowait(_line("ERROR", msgspec.json.encode({"code": 410, "reason": "Expired", "message": ""})))
    asked = len(mirror.rows()), view.requests
    while any(feed.lists < 2 for feed in feeds.values()):
        await asyncio.sleep(0.05)
    mirror.apply(view.take())
    _rollup(mirror, rollups + 2)
    assert (len(mirror.rows()), view.requests) == asked, "a list anew changed what is asked for"
    for task in running:
        task.cancel()
    changed.sort()
    walls.sort()
    return {
        "requests": count,
        "pods": count,
        "rows": rows,
        "rollup_bytes": size,
        # From what was decoded to the bytes of the first roll-up.
        "cold_ms": round((applied + cold) * 1000, 1),
        "read_and_decoded_s": round(read, 2),
        "changed_p50_ms": round(statistics.median(changed), 1),
        "changed_p99_ms": round(changed[max(0, int(len(changed) * 0.99) - 1)], 1),
        "changed_p99_wall_ms": round(walls[max(0, int(len(walls) * 0.99) - 1)], 1),
        "memory_after_the_first_list_mb": round(listed / 1e6, 1),
        "memory_mb": round(_highest() / 1e6, 1),
    }


def _rollup(mirror: Mirror, now: int) -> tuple[float, int, int]:
    began = time.process_time()
    mirror.settle(now)
    rows = mirror.rows()
    built = rollup_to_wire("c-1", rows, timestamp=now, version=mirror.version).SerializeToString()
    return time.process_time() - began, len(rows), len(built)


def _line(kind: str, document: bytes) -> bytes:
    return b'{"type":"%s","object":%s}' % (kind.encode(), document)


def _request(document: bytes) -> bytes:
    """The request the pod controller writes for it."""
    pod = _PODS.decode(document)
    body, _ = request_for(pod)
    assert body is not None
    return msgspec.json.encode(
        {**body, "metadata": {**body["metadata"], "resourceVersion": f"9{pod.metadata.resource_version}"}}
    )


def _pod(number: int, life: int, templates: int, node: str) -> bytes:
    kind = number % templates
    name = f"p-{number}-{life}"
    document = {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"{number:08x}-{life:04x}-4000-8000-000000000000",
            "resourceVersion": str(10_000_000 + number),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": f"app-{kind}", "pod-template-hash": f"{kind:x}"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"app-{kind}", "uid": f"rs-{kind}", "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "priority": 100 * (kind % 5),
            "containers": [
                {"name": "c", "resources": {"requests": {"cpu": SIZES[kind % 4], "memory": f"{1 + kind % 3}Gi"}}}
            ],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {"phase": "Running"},
    }
    return msgspec.json.encode(document)


def _node(number: int) -> Node:
    room = {"cpu": "128", "memory": "512Gi", "pods": "250"}
    name = f"n{number}"
    document = {
        "metadata": {
            "name": name,
            "labels": {"bigfleet.lucy.sh/machine-id": f"m{number}", "kubernetes.io/hostname": name},
        },
        "status": {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Node)


def _highest() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--size", type=int, help="measure this many in this process, and print it")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.size:
        print(json.dumps(asyncio.run(measure(options.size, rollups=ROLLUPS if options.size < 100_000 else 3))))
        return 0
    found: dict[str, Any] = {"command": "python -m tools.kube.many_requests"}
    good = True
    for size in (10_000, 25_000, 250_000):
        done = subprocess.run(
            [sys.executable, "-m", "tools.kube.many_requests", "--size", str(size)],
            capture_output=True,
            text=True,
            check=True,
        )
        one = json.loads(done.stdout)
        limits = LIMITS.get(f"{size:,}", {})
        one["limits"] = limits
        good = good and all(one[name] <= limit for name, limit in limits.items())
        if size == 10_000:
            one["limits"] = {"rows": [5, 20]}
            good = good and 5 <= one["rows"] <= 20
        found[f"{size:,}"] = one
    found["verdict"] = "PASS" if good else "FAIL"
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
