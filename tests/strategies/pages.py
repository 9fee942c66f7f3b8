"""What every page that BigFleet writes has to be: balanced HTML that loads and runs nothing."""

from html.parser import HTMLParser

EMPTY = {"meta", "br", "path", "rect"}


class _Balance(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe"), tag
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attrs), attrs
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in EMPTY, tag

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def assert_self_contained(page: str) -> None:
    balance = _Balance()
    balance.feed(page)
    assert balance.open == []
    assert "http" not in page
    assert "nan" not in page.split("</style>")[1].replace("maintenance", "")
