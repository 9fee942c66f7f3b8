"""The README as a package index shows it: an index has no files beside the page, so links and pictures must be whole.

With a repository in `[project.urls]` they are made absolute. Without one a picture becomes its description and a link
its text: better a sentence than a broken frame. Only the build uses this (`[tool.hatch.metadata.hooks.custom]`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?://)([^)]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|#)([^)]+)\)")
_MARK = re.compile(r"^<!-- .* -->\n\n?", re.M)


def index_readme(text: str, urls: Mapping[str, str]) -> str:
    """The README for an index."""
    repository = next((url.rstrip("/") for name, url in urls.items() if name.lower() in ("repository", "source")), "")
    text = _MARK.sub("", text)
    if repository:
        text = _PICTURE.sub(rf"![\1]({repository}/raw/main/\2)", text)
        return _LINK.sub(rf"[\1]({repository}/blob/main/\2)", text)
    return _LINK.sub(r"\1", _PICTURE.sub(r"*(picture: \1)*", text))


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": index_readme(text, metadata.get("urls", {})),
        }
