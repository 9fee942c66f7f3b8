"""`docs/wire.md` keeps up with the contract: all capabilities and added fields are told there, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from bigfleet.coordinator.core import reports
from bigfleet.model import names
from tools.wire_contract import read_rows

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "wire.md").read_text()


def section(begins: str) -> str:
    return next(part for part in PAGE.split("\n## ") if part.startswith(begins))


def first_cells(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`([^`]+)`", cell)}


def test_the_capabilities_of_operators_and_shards_are_those_of_the_code() -> None:
    assert first_cells(section("Capabilities of an operator")) == {*names.OPERATOR_CAPABILITIES, names.PLACEMENT}
    mine = {reports.TABLES, reports.TRANSFERS, reports.RAILS, reports.PROVIDERS, reports.ARRIVALS, reports.LOOKS}
    assert first_cells(section("Capabilities of a shard")) == mine


def test_every_field_added_to_a_shared_message_is_told() -> None:
    base, added = (read_rows(ROOT / "proto" / name) for name in ("base.csv", "extensions.csv"))
    shared = {row.owner for row in base if row.kind == "message"}
    fields = {f"{row.owner}.{row.name}" for row in added if row.kind == "field" and row.owner in shared}
    assert first_cells(section("Fields BigFleet adds")) == fields


def test_trailers_are_told_and_the_page_is_found_from_the_readme() -> None:
    told = section("Trailers")
    for name in (names.REDIRECT, names.REASON, names.SOLD_OUT, names.THROTTLED, names.LEADER_TERM):
        assert f"`{name}`" in told
    assert "docs/wire.md" in (ROOT / "README.md").read_text()
