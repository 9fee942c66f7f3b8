"""Settings of a run: files and flags merge, mistakes are named, durations are understood."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bigfleet.provider.conformance.config import (
    EXAMPLE,
    REFERENCE_FAULTS,
    Config,
    Fault,
    Faults,
    Pool,
    Restart,
    Scale,
    Timing,
    Tls,
    UsageError,
    load_config,
    seconds,
)


def test_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("target: a:1\nprofiles: [core, spot]\ntiming: {multiplier: 4, create: 10m}\npool: {slots: 4}\n")
    config = load_config(file, {"target": "b:2", "profiles": "core,cloud", "timing": {"multiplier": None}})
    assert (config.target, config.profiles) == ("b:2", ("core", "cloud"))
    assert config.timing.multiplier == 4
    assert seconds(config.timing.create) == 600
    assert config.pool.slots == 4


def test_toml_and_json_are_read_too(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('target = "a:1"\n[faults.configure_error]\ncluster = "broken"\n')
    (tmp_path / "c.json").write_text('{"target": "a:1", "faults": "reference"}')
    faults = load_config(tmp_path / "c.toml", {}).fault_map()
    assert faults is not None
    assert faults.configure_error == Fault(cluster="broken")
    assert load_config(tmp_path / "c.json", {}).fault_map() is REFERENCE_FAULTS


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, "nothing to test"),
        ({"target": "a:1", "profiles": "core,cloudy"}, "'cloudy'"),
        ({"target": "a:1", "profiles": "cloud,bare-metal"}, "exclude each other"),
        ({"target": "a:1", "tragets": 1}, "tragets"),
        ({"target": "a:1", "timing": {"create": "soon"}}, "'soon'"),
        ({"target": "a:1", "timing": {"multiplier": 0}}, "multiplier"),
        ({"target": "a:1", "tls": {"cert": "x"}}, "cert and key"),
        ({"target": "a:1", "faults": "mine"}, "'mine'"),
        ({"target": "a:1", "blob_file": "/no/such/blob"}, "/no/such/blob"),
    ],
)
def test_mistakes_are_named(settings: dict[str, object], names: str) -> None:
    with pytest.raises(UsageError, match=names):
        load_config(None, settings)


def test_an_unreadable_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_config(tmp_path / "absent.yaml", {})
    broken = tmp_path / "c.yaml"
    broken.write_text("a: [1")
    with pytest.raises(UsageError, match="not valid yaml"):
        load_config(broken, {})


def test_durations() -> None:
    assert [seconds(text) for text in ("250ms", "15s", "10m", "1h", 3, "2.5")] == [0.25, 15, 600, 3600, 3, 2.5]


def test_the_printed_example_is_valid_names_every_key_and_shows_the_defaults() -> None:
    example = load_config(EXAMPLE, {})
    text = EXAMPLE.read_text(encoding="utf-8")
    for struct in (Config, Tls, Timing, Pool, Faults, Restart, Scale):
        assert [name for name in struct.__struct_fields__ if f"{name}:" not in text] == []
    assert (example.tls, example.pool, example.fault, example.durable) == (Tls(), Pool(), Restart(), Restart())
    shown, usual = example.timing, Timing()
    assert [seconds(getattr(shown, f)) for f in shown.__struct_fields__] == [
        seconds(getattr(usual, f)) for f in usual.__struct_fields__
    ]
    assert msgspec.structs.replace(example.scale, soak=8.0) == Scale()
    faults = example.fault_map()
    assert faults is not None
    assert msgspec.structs.replace(faults, host_loss=None, timeout=2.0) == REFERENCE_FAULTS
