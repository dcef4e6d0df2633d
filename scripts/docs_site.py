"""Hooks of MkDocs: add the READMEs of folders to the site, and keep every link inside it."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Pages of the site that lie outside of `docs`: the file in the repository, by the page's name.
OUTSIDE = {
    "index.md": "README.md",
    "reference/gateway.md": "server/README.md",
    "reference/model-server.md": "serving_ops/README.md",
    "reference/examples.md": "examples/README.md",
}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)|!\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie outside of `docs`."""
    for name, source in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links to files of the repository into links of the site, or into file names."""
    return site_links(markdown, page.file.src_uri)


def site_links(markdown: str, name: str) -> str:
    """Rewrites the links of a page.

    `name` is the page's path in the site, such as "reference/gateway.md".

    Returns:
        The text. A link to a page of the site is relative to `name`. A link to any other file of
        the repository becomes the file's path as code.
    """
    pages = {source: page for page, source in OUTSIDE.items()}
    folder = posixpath.dirname(OUTSIDE.get(name, f"docs/{name}"))

    def rewritten(link: re.Match[str]) -> str:
        target, _, anchor = (link[2] or link[4]).partition("#")
        if not target or "://" in target:
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target))
        own = pages.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if not own:
            return f"`{path}`"
        relative = posixpath.relpath(own, posixpath.dirname(name))
        return link[0].replace(link[2] or link[4], f"{relative}#{anchor}" if anchor else relative)

    return _LINK.sub(rewritten, markdown)
