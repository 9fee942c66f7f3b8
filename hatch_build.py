"""The README as a package index shows it: an index has no files beside the page, so links and pictures must be whole.

With a repository in `[project.urls]` they are made absolute. Without one a link becomes its text, and a picture of a
terminal the screen it shows, in text: better than a broken frame. Only the build uses this
(`[tool.hatch.metadata.hooks.custom]`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?://)([^)]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")
_DRAWN = re.compile(r'<text [^>]*\bx="([0-9.]+)" y="([0-9.]+)"[^>]*clip-path[^>]*>([^<]*)</text>')
_COLUMN = 12.2
_MARK = re.compile(r"^<!-- .* -->\n\n?", re.M)


def screen(svg: str) -> str:
    """What a picture of a terminal shows, as text."""
    lines: dict[float, str] = {}
    for x, y, drawn in _DRAWN.findall(svg):
        line = lines.get(float(y), "").ljust(round(float(x) / _COLUMN))
        lines[float(y)] = line + html.unescape(drawn).replace("\xa0", " ").rstrip("\n")
    return "\n".join(lines[y].rstrip() for y in sorted(lines))


def index_readme(text: str, urls: Mapping[str, str], root: Path) -> str:
    """The README for an index."""
    repository = next((url.rstrip("/") for name, url in urls.items() if name.lower() in ("repository", "source")), "")
    text = _MARK.sub("", text)
    if repository:
        text = _PICTURE.sub(rf"![\1]({repository}/raw/main/\2)", text)
        return _LINK.sub(rf"[\1]({repository}/blob/main/\2)", text)

    def shown(picture: re.Match[str]) -> str:
        return f"```text\n{screen((root / picture[2]).read_text(encoding='utf-8'))}\n```\n\n*{picture[1]}*"

    return _LINK.sub(r"\1", _PICTURE.sub(shown, text))


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": index_readme(text, metadata.get("urls", {}), Path(self.root)),
        }
