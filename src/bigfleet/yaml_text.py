"""YAML as people write it, read once for all files: a key that stands twice in one mapping is an error.

YAML itself forbids it and PyYAML takes the last one, so that half of a file that was put together by hand counts for
nothing and nobody is told. TOML's reader refuses it by itself.
"""

from __future__ import annotations

from typing import Any

import yaml


def read_yaml(text: str) -> Any:
    """What the text says; `yaml.YAMLError` where it is not YAML or gives a key twice, that one in a single line."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if (found := given_twice(node)) is not None:
            raise yaml.YAMLError(f"line {found[0].start_mark.line + 1}: {told_twice(*found)}")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def given_twice(node: yaml.Node) -> tuple[yaml.Node, yaml.Node] | None:
    """The first key that its mapping has already, and where it stood before; None where there is none."""
    left, seen = [node], set()
    while left:
        each = left.pop()
        # An anchor is met as often as it is used, and may contain itself.
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, yaml.SequenceNode):
            left.extend(reversed(each.value))
        elif isinstance(each, yaml.MappingNode):
            keys: dict[tuple[str, str], yaml.Node] = {}
            for key, _ in each.value:
                if isinstance(key, yaml.ScalarNode):
                    before = keys.setdefault((key.tag, key.value), key)
                    if before is not key:
                        return key, before
            left.extend(value for _, value in reversed(each.value))
    return None


def told_twice(key: yaml.Node, before: yaml.Node) -> str:
    return f"key {key.value!r} was given in line {before.start_mark.line + 1} already; give it once"
