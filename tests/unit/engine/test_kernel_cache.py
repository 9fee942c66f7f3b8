"""Where compiled kernels are kept: a changed source is seen wherever it lies, and a full cache serves unwritten."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bigfleet.engine.kernels import cache
from bigfleet.engine.kernels.cache import PACKAGE, KernelStore, cache_name, sources_digest
from tools import fuzz_engine


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A copy of the engine's sources, with a kernel in a folder of a folder."""
    copy = tmp_path / "engine"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    deep = copy / "fleet" / "deep"
    deep.mkdir(parents=True)
    (deep / "rows.py").write_text("LIMIT = 1\n")
    return copy


def test_the_package_is_the_engine() -> None:
    assert (PACKAGE / "policy.py").exists() or list(PACKAGE.rglob("policy.py"))
    assert (PACKAGE.name, PACKAGE.parent.name) == ("engine", "bigfleet")


def test_a_change_in_any_subfolder_gives_another_key(engine: Path) -> None:
    before = cache_name(engine)
    assert cache_name(engine) == before
    (engine / "fleet" / "deep" / "rows.py").write_text("LIMIT = 2\n")
    changed = cache_name(engine)
    assert changed != before
    (engine / "fleet" / "deep" / "rows.py").write_text("LIMIT = 1\n")
    assert cache_name(engine) == before


def test_every_source_of_the_engine_counts(engine: Path) -> None:
    before = cache_name(engine)
    for source in engine.rglob("*.py"):
        text = source.read_text()
        source.write_text(text + "\n# changed\n")
        assert cache_name(engine) != before, source
        source.write_text(text)


def test_a_moved_source_gives_another_key(engine: Path) -> None:
    before = cache_name(engine)
    (engine / "fleet" / "deep" / "rows.py").rename(engine / "fleet" / "rows.py")
    assert cache_name(engine) != before


def test_what_is_no_source_gives_the_same_key(engine: Path) -> None:
    before = cache_name(engine)
    (engine / "fleet" / "__pycache__").mkdir()
    (engine / "fleet" / "__pycache__" / "rows.pyc").write_bytes(b"1")
    assert cache_name(engine) == before


def test_the_fuzzer_names_the_same_sources() -> None:
    assert fuzz_engine._source() == sources_digest()


def test_the_variable_comes_first_and_other_places_serve_when_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "chosen"))
    found = KernelStore.found()
    assert found is not None and found.directory == tmp_path / "chosen" / cache_name()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file" / "inside"))
    found = KernelStore.found()
    assert found is not None and found.directory == tmp_path / "home" / cache_name()


def test_no_place_at_all_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "cache_roots", lambda: [tmp_path / "file" / "inside"])
    assert KernelStore.found() is None


def test_a_sealed_cache_is_used_although_it_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_roots", lambda: [tmp_path])
    store = KernelStore.found()
    assert store is not None and store.writable and not store.complete

    def read_only(**_: Any) -> Any:
        raise PermissionError("read-only file system")

    with monkeypatch.context() as image:
        image.setattr(tempfile, "TemporaryFile", read_only)
        assert KernelStore.found() is None, "an empty cache that cannot be filled is none"
    store.seal()
    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    found = KernelStore.found()
    assert found is not None and found.complete and not found.writable


def test_a_kernel_is_loaded_from_where_another_left_it(tmp_path: Path) -> None:
    import numba

    def third(column: Any) -> int:
        return int(column[2])

    signature = numba.int64(numba.types.Array(numba.int64, 1, "C"))
    hits = []
    for _ in range(2):
        dispatcher = numba.njit(third)
        KernelStore(tmp_path, writable=True).keep(dispatcher, third)
        dispatcher.compile(signature)
        assert dispatcher(np.array([1, 2, 3])) == 3
        hits.append(sum(dispatcher.stats.cache_hits.values()))
    assert hits == [0, 1]


def test_a_cache_that_cannot_take_a_kernel_costs_no_more_than_time(tmp_path: Path) -> None:
    import numba

    def second(column: Any) -> int:
        return int(column[1])

    (tmp_path / "file").write_text("")
    dispatcher = numba.njit(second)
    KernelStore(tmp_path / "file" / "inside", writable=False).keep(dispatcher, second)
    assert dispatcher(np.array([1, 2, 3])) == 2


def test_old_caches_go_and_a_few_stay(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"bigfleet-kernels-{number:016x}").mkdir()
    (tmp_path / "something-else").mkdir()
    current = tmp_path / "bigfleet-kernels-current"
    current.mkdir()
    KernelStore(current, writable=True).seal()
    left = sorted(path.name for path in tmp_path.glob("bigfleet-kernels-*"))
    assert len(left) == 6 and current.name in left
    assert (tmp_path / "something-else").exists()
