"""A key that stands twice in a file is refused with its line, by everything that reads YAML."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bigfleet.operator.kube.access import from_kubeconfig
from bigfleet.operator.pods.process import read_defaults
from bigfleet.provider.conformance.config import load_config
from bigfleet.provider.fake.catalogue import parse_catalogue
from bigfleet.shard.rehearsal.seeding import read_archetypes
from bigfleet.shard.settings import read_config_file
from bigfleet.sim.document.nodes import compose
from bigfleet.yaml_text import read_yaml

TWICE = "a:\n  x: 1\nb: [1]\na: 2\n"


def test_what_is_given_once_is_read_as_ever() -> None:
    text = "base: &base {x: 1, y: [2, {z: 3}]}\nlike: {<<: *base, x: 4}\n1: one\n'1': text\nself: &me [*me]\n"
    assert read_yaml(text.partition("self")[0]) == yaml.safe_load(text.partition("self")[0])
    assert read_yaml("") is None and read_yaml("- 1\n- 2") == [1, 2]
    assert read_yaml(text)["like"] == {"x": 4, "y": [2, {"z": 3}]}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (TWICE, "line 4: key 'a' was given in line 1 already; give it once"),
        ("a: {b: [{c: 1,\n c: 2}]}", "line 2: key 'c' was given in line 1 already; give it once"),
    ],
)
def test_a_key_that_stands_twice_is_refused_with_both_lines(text: str, complaint: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        read_yaml(text)
    assert str(caught.value) == complaint


READERS: dict[str, Callable[[Path], Any]] = {
    "shard config": read_config_file,
    "archetypes": read_archetypes,
    "penalties": read_defaults,
    "kubeconfig": from_kubeconfig,
    "conformance": lambda path: load_config(path, {}),
    "catalogue": lambda path: parse_catalogue(path.read_text(), str(path)),
    "scenario or map": lambda path: compose(path.read_text(), str(path)),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
def test_everything_that_reads_yaml_refuses_it(read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    path.write_text(TWICE)
    with pytest.raises(Exception, match="key 'a' was given in line 1 already; give it once") as caught:
        read(path)
    assert str(path) in str(caught.value) and ("line 4" in str(caught.value) or ":4:" in str(caught.value))


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("c.json", '{"a": {"b": 1, "b": 2}}', "key 'b' is given twice; give it once"),
        ("c.toml", "a = 1\nb = 2\na = 3\n", "line 3"),
    ],
)
def test_other_formats_refuse_it_too(name: str, text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(Exception, match=complaint):
        load_config(path, {})
