"""Regenerates what the tree keeps as generated files: the modules under src/bigfleet/wire.

`make generate` runs it; `python tools/generate.py --check` writes nothing and fails when a committed file
differs from what the sources would give. The output is a pure function of proto/ and the pinned compilers.
"""

from __future__ import annotations

import argparse
import re
import sys
import sysconfig
import tempfile
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parent.parent
PROTO_ROOT = ROOT / "proto"
PROTO_PACKAGE = "bigfleet/v1alpha1"
WIRE = ROOT / "src" / "bigfleet" / "wire"

# protoc derives Python module names from file paths, but the package is imported as bigfleet.wire. Only import
# lines and the module name handed to the builder change; the descriptors keep bigfleet/v1alpha1/<file>.proto.
_IMPORTS = re.compile(r"^(from|import) bigfleet\.v1alpha1\b", re.MULTILINE)
_MODULE_NAME = re.compile(r"(BuildTopDescriptorsAndMessages\(DESCRIPTOR, ')bigfleet\.v1alpha1\.")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a committed file is stale")
    options = parser.parse_args(arguments)
    wanted = wire_modules(PROTO_ROOT)
    if options.check:
        stale = differences(wanted, WIRE)
        for line in stale:
            print(line, file=sys.stderr)
        if stale:
            print("generated files are stale: run `make generate` and commit the result", file=sys.stderr)
        return 1 if stale else 0
    write(wanted, WIRE)
    return 0


def wire_modules(proto_root: Path) -> dict[str, str]:
    """Compile every .proto below `proto_root` and return file name -> text for src/bigfleet/wire."""
    sources = sorted(path.relative_to(proto_root).as_posix() for path in (proto_root / PROTO_PACKAGE).glob("*.proto"))
    serving = [source for source in sources if re.search(r"^service ", (proto_root / source).read_text(), re.MULTILINE)]
    with tempfile.TemporaryDirectory() as scratch:
        _protoc(proto_root, sources, f"--python_out={scratch}", f"--mypy_out=quiet:{scratch}")
        _protoc(proto_root, serving, f"--grpc_python_out={scratch}", f"--mypy_grpc_out=quiet:{scratch}")
        produced = sorted((Path(scratch) / PROTO_PACKAGE).iterdir())
        return {path.name: _as_wire_module(path.read_text()) for path in produced}


def differences(wanted: dict[str, str], folder: Path) -> list[str]:
    """One line for every file in `folder` that is missing, outdated, or no longer generated."""
    present = {path.name for pattern in ("*_pb2*.py", "*_pb2*.pyi") for path in folder.glob(pattern)}
    lines = [f"{folder / name}: no .proto produces this file any more" for name in sorted(present - wanted.keys())]
    for name, text in sorted(wanted.items()):
        path = folder / name
        if name not in present:
            lines.append(f"{path}: missing")
        elif path.read_text() != text:
            lines.append(f"{path}: differs from what its .proto gives")
    return lines


def write(wanted: dict[str, str], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in ("*_pb2*.py", "*_pb2*.pyi"):
        for path in folder.glob(pattern):
            if path.name not in wanted:
                path.unlink()
    for name, text in wanted.items():
        path = folder / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _protoc(proto_root: Path, sources: list[str], *outputs: str) -> None:
    scripts = Path(sysconfig.get_path("scripts"))
    plugins = [f"--plugin={name}={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    code = protoc.main(["protoc", f"-I{proto_root}", *plugins, *outputs, *sources])
    if code != 0:
        raise SystemExit(f"protoc failed with exit code {code} on {', '.join(sources)}")


def _as_wire_module(text: str) -> str:
    return _MODULE_NAME.sub(r"\1bigfleet.wire.", _IMPORTS.sub(r"\1 bigfleet.wire", text))


if __name__ == "__main__":
    sys.exit(main())
