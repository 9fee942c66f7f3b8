"""Twenty kills of a provider process under load: nothing acknowledged is lost. `make crash` does two hundred."""

from __future__ import annotations

from tools.crash import crash


async def test_twenty_kills_lose_no_promise() -> None:
    report = await crash(kills=20, seed=7)
    assert report["verdict"] == "PASSED", report
    assert sum(report["acknowledged"].values()) > 100, "the load was real"
