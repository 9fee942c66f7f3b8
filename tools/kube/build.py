"""Builds the programs of a control plane from their Go modules, once, into a cache keyed by version.

No container image and no release archive: what is needed is a Go toolchain and its module proxy. Every part is built
only if it is missing and appears whole or not at all, so that an interrupted build is continued by the next one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

KUBERNETES = "1.36.3"
ETCD = "3.6.16"
KWOK = "0.8.0"
HELM = "3.22.0"

CACHE = Path(os.environ.get("BIGFLEET_KUBE_CACHE", Path.home() / ".cache" / "bigfleet-kube"))
# One folder per set of versions: a change of any of them never runs yesterday's program.
BIN = CACHE / f"k8s-{KUBERNETES}-etcd-{ETCD}-kwok-{KWOK}"


@dataclass(frozen=True)
class Part:
    """One Go build and the programs it leaves behind."""

    name: str
    programs: tuple[str, ...]
    about: str
    build: Callable[[Path, Path], None]
    optional: bool = False

    def missing(self) -> tuple[str, ...]:
        return tuple(program for program in self.programs if not (BIN / program).exists())


def missing() -> tuple[str, ...]:
    """Programs a cluster needs and the cache does not hold."""
    return tuple(program for part in PARTS if not part.optional for program in part.missing())


def build(names: Iterable[str] = (), tell: Callable[[str], None] = print) -> None:
    """Build what is missing of the named parts, or of every part that a cluster needs."""
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
        part.build(work, fresh)
        for program in part.programs:
            (fresh / program).replace(BIN / program)
        tell(f"{part.name}: done in {time.monotonic() - began:.0f} s")


def _kubernetes(work: Path, out: Path) -> None:
    """The four commands of k8s.io/kubernetes, whose go.mod points its sibling modules at folders of its repository."""
    listed = json.loads(_go(work, "mod", "download", "-json", f"k8s.io/kubernetes@v{KUBERNETES}"))
    requires = json.loads(_go(work, "mod", "edit", "-json", listed["GoMod"]))["Require"]
    siblings = sorted(entry["Path"] for entry in requires if entry["Version"] == "v0.0.0")
    minor = KUBERNETES.split(".", 1)[1]
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES_COMMANDS]
    replaces = "\n".join(f"replace {path} => {path} v0.{minor}" for path in siblings)
    _module(work, f"require k8s.io/kubernetes v{KUBERNETES}\n\n{replaces}\n", commands)
    version = "k8s.io/component-base/version"
    stamps = {"gitVersion": f"v{KUBERNETES}", "gitMajor": "1", "gitMinor": minor.split(".")[0]}
    flags = " ".join(["-s -w", *(f"-X {version}.{name}={value}" for name, value in stamps.items())])
    # One command at a time: what two links side by side need of memory is no small machine's.
    for command in commands:
        _go(work, "build", "-trimpath", "-ldflags", flags, "-o", f"{out}/", command, shown=True)


def _etcd(work: Path, out: Path) -> None:
    """etcd's own root module is not published: its server and its client are."""
    requires = "".join(f"require go.etcd.io/etcd/{name}/v3 v{ETCD}\n" for name in ("server", "etcdctl"))
    imports = 'import (\n\t"os"\n\n\t"go.etcd.io/etcd/server/v3/etcdmain"\n)'
    main = f"package main\n\n{imports}\n\nfunc main() {{ etcdmain.Main(os.Args) }}\n"
    (work / "etcd").mkdir(exist_ok=True)
    (work / "etcd" / "main.go").write_text(main)
    _module(work, requires, ["go.etcd.io/etcd/etcdctl/v3"])
    _go(work, "build", "-trimpath", "-ldflags", "-s -w", "-o", f"{out}/etcd", "./etcd", shown=True)
    _go(
        work,
        "build",
        "-trimpath",
        "-ldflags",
        "-s -w",
        "-o",
        f"{out}/etcdctl",
        "go.etcd.io/etcd/etcdctl/v3",
        shown=True,
    )


def _install(package: str, version: str) -> Callable[[Path, Path], None]:
    def build(work: Path, out: Path) -> None:
        environment = {"GOBIN": str(out)}
        _go(
            work,
            "install",
            "-trimpath",
            "-ldflags",
            "-s -w",
            f"{package}@v{version}",
            shown=True,
            environment=environment,
        )

    return build


def _module(work: Path, requires: str, imports: Sequence[str]) -> None:
    """A module of our own that holds the programs' dependencies, tidied once."""
    blank = "".join(f'import _ "{path}"\n' for path in imports)
    (work / "tools.go").write_text(f"//go:build tools\n\npackage tools\n\n{blank}")
    if not (work / "go.sum").exists():
        (work / "go.mod").write_text(f"module bigfleet/kube\n\ngo 1.26\n\n{requires}")
        _go(work, "mod", "tidy", shown=True)


def _go(work: Path, *arguments: str, shown: bool = False, environment: dict[str, str] | None = None) -> str:
    """One go command: its output, or, of a long one, its progress on our own standard error."""
    if shown:
        print(f"  go {' '.join(arguments)}", flush=True)
    done = subprocess.run(
        ["go", *arguments],
        cwd=work,
        env={**os.environ, **(environment or {})},
        stdout=None if shown else subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"go {' '.join(arguments[:2])} failed in {work}: see above")
    return done.stdout or ""


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
