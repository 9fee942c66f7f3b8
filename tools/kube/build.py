"""Builds the programs of a control plane from their Go modules, once, into a cache keyed by version.

No container image and no release archive: what is needed is a Go toolchain and its module proxy. Every part is built
only if it is missing and appears whole or not at all, so that an interrupted build is continued by the next one. What
takes minutes says every half minute how far it is, and may be given an end.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
KWOK = "0.8.0"
HELM = "3.22.0"

TOLD_EVERY_SECONDS = 30.0

CACHE = Path(os.environ.get("BIGFLEET_KUBE_CACHE", Path.home() / ".cache" / "bigfleet-kube"))
# One folder per set of versions: a change of any of them never runs yesterday's program.
BIN = CACHE / f"k8s-{KUBERNETES}-etcd-{ETCD}-kwok-{KWOK}"


@dataclass(frozen=True)
class Part:
    """One Go build and the programs it leaves behind."""

    name: str
    programs: tuple[str, ...]
    about: str
    build: Callable[[Go, Path], None]
    optional: bool = False

    def missing(self) -> tuple[str, ...]:
        return tuple(program for program in self.programs if not (BIN / program).exists())


def missing() -> tuple[str, ...]:
    """Programs a cluster needs and the cache does not hold."""
    return tuple(program for part in PARTS if not part.optional for program in part.missing())


def skipped() -> str:
    """Why tests on a real control plane cannot run here; empty when they can."""
    if not missing():
        return ""
    how = "python -m tools.kube build" if shutil.which("go") else "a Go toolchain, then python -m tools.kube build"
    return f"the tests on a real control plane are skipped: they need {how}"


def build(
    names: Iterable[str] = (), tell: Callable[[str], None] = print, *, within_seconds: float = float("inf")
) -> None:
    """Build what is missing of the named parts, or of every part that a cluster needs; what is not done by the end is
    given up, and the next build goes on from there."""
    end = time.monotonic() + within_seconds
    if shutil.which("go") is None:
        raise SystemExit("building a control plane needs the Go toolchain on PATH")
    wanted = set(names)
    unknown = wanted - {part.name for part in PARTS}
    if unknown:
        raise SystemExit(f"no part {sorted(unknown)[0]!r}: there are {', '.join(part.name for part in PARTS)}")
    BIN.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        if part.name not in wanted if wanted else part.optional:
            continue
        if not part.missing():
            tell(f"{part.name}: built already, in {BIN}")
            continue
        tell(f"{part.name}: building {', '.join(part.programs)} ({part.about}) ...")
        began = time.monotonic()
        work = CACHE / "work" / part.name
        fresh = work / "bin"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        part.build(Go(work, tell, end), fresh)
        for program in part.programs:
            (fresh / program).replace(BIN / program)
        tell(f"{part.name}: done in {time.monotonic() - began:.0f} s")


class Go:
    """Go commands in one folder, told about while they run and ended at the end of our time."""

    def __init__(self, work: Path, tell: Callable[[str], None], end: float) -> None:
        self.work = work
        self._tell = tell
        self._end = end

    def says(self, *arguments: str) -> str:
        """A short one: what it prints."""
        done = subprocess.run(["go", *arguments], cwd=self.work, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"go {' '.join(arguments[:2])} failed in {self.work}: see above")
        return done.stdout

    def runs(self, *arguments: str, **environment: str) -> None:
        """A long one: it names each module it fetches and each package it compiles, of which we tell how many."""
        what = f"go {arguments[0]} {arguments[-1]}"
        self._tell(f"  {what} ...")
        process = subprocess.Popen(
            ["go", *arguments],
            cwd=self.work,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True).start()
        began = told = time.monotonic()
        last: deque[str] = deque(maxlen=20)
        fetched = compiled = 0
        while True:
            try:
                line = lines.get(timeout=1.0)
            except queue.Empty:
                line = ""
            now = time.monotonic()
            if line is None:
                break
            if line:
                last.append(line)
                fetched += line.startswith("go: downloading")
                compiled += not line.startswith("go: ")
            if now >= self._end:
                process.kill()
                process.wait()
                raise SystemExit(f"{what}: given up after {now - began:.0f} s, because the time for building is over")
            if now - told >= TOLD_EVERY_SECONDS:
                told = now
                self._tell(f"  {now - began:4.0f} s: {fetched} modules fetched, {compiled} packages compiled")
        if process.wait():
            self._tell("".join(last))
            raise SystemExit(f"{what} failed in {self.work}: see above")


def _pass_on(stream: IO[str], lines: queue.SimpleQueue[str | None]) -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _kubernetes(go: Go, out: Path) -> None:
    """The four commands of k8s.io/kubernetes, whose go.mod points its sibling modules at folders of its repository."""
    listed = json.loads(go.says("mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    requires = json.loads(go.says("mod", "edit", "-json", listed["GoMod"]))["Require"]
    siblings = sorted(entry["Path"] for entry in requires if entry["Version"] == "v0.0.0")
    minor = KUBERNETES.split(".", 1)[1]
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS]
    replaces = "\n".join(f"replace {path} => {path} v0.{minor}" for path in siblings)
    _module(go, f"require k8s.io/kubernetes v{KUBERNETES}\n\n{replaces}\n", commands)
    version = "k8s.io/component-base/version"
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": "1", "gitMinor": minor.split(".")[0]}
    flags = " ".join(["-s -w", *(f"-X {version}.{name}={value}" for name, value in stamps.items())])
    # One command at a time: what two links side by side need of memory is no small machine's.
    for command in commands:
        go.runs("build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{out}/", command)


def _etcd(go: Go, out: Path) -> None:
    """etcd's own root module is not published: its server and its client are."""
    requires = "".join(f"require go.etcd.io/etcd/{name}/v3 v{ETCD}\n" for name in ("server", "etcdctl"))
    imports = 'import (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)'
    main = f"package main\n\n{imports}\n\nfunc main() {{ etcdmain.Main(os.Args) }}\n"
    (go.work / "etcd").mkdir(exist_ok=True)
    (go.work / "etcd" / "main.go").write_text(main)
    _module(go, requires, ["go.etcd.io/etcd/etcdctl/v3"])
    for name, package in (("etcd", "./etcd"), ("etcdctl", "go.etcd.io/etcd/etcdctl/v3")):
        go.runs("build", "-v", "-trimpath", "-ldflags", "-s -w", "-o", f"{out}/{name}", package)


def _install(package: str, version: str) -> Callable[[Go, Path], None]:
    def build(go: Go, out: Path) -> None:
        go.runs("install", "-v", "-trimpath", "-ldflags", "-s -w", f"{package}@v{version}", GOBIN=str(out))

    return build


def _module(go: Go, requires: str, imports: Sequence[str]) -> None:
    """A module of our own that holds the programs' dependencies, tidied once."""
    blank = "".join(f'import _ "{path}"\n' for path in imports)
    (go.work / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{blank}")
    if not (go.work / "go.sum").exists():
        (go.work / "go.mod").write_text(f"module bigfleet/kube\n\ngo 1.26\n\n{requires}")
        go.runs("mod", "tidy")


KUBERNETES_COMMANDS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
PARTS = (
    Part("etcd", ("etcd", "etcdctl"), f"{ETCD}, about a minute on two cores", _etcd),
    Part("kubernetes", KUBERNETES_COMMANDS, f"{KUBERNETES}, about 12 minutes on two cores", _kubernetes),
    Part("kwok", ("kwok",), f"{KWOK}, about 5 minutes on two cores", _install("sigs.k8s.io/kwok/cmd/kwok", KWOK)),
    Part(
        "helm",
        ("helm",),
        f"{HELM}, about 5 minutes on two cores",
        _install("helm.sh/helm/v3/cmd/helm", HELM),
        optional=True,
    ),
)
