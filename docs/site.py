"""What the site has beyond the pages of docs/: the README as its index, and the reference.

The reference has one page for each room of src/m2fdp, with every module of it, so that no list of
modules has to be kept.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

DOCS = Path(__file__).parent
REPOSITORY = DOCS.parent
PACKAGE = REPOSITORY / "src" / "m2fdp"

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def rooms() -> dict[str, list[str]]:
    """The modules of each room, by the room's name; a module that is none's is its own."""
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("m2fdp", *path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__main__":
            continue
        module = ".".join(part for part in parts if part != "__init__")
        found.setdefault((*module.split("."), "m2fdp")[1], []).append(module)
    return {room: sorted(modules) for room, modules in sorted(found.items())}


def reference() -> Iterator[tuple[str, str]]:
    """Path and Markdown of the reference's pages."""
    for room, modules in rooms().items():
        blocks = [f"# {room}", *(f"::: {module}" for module in modules)]
        yield f"reference/{room}.md", "\n\n".join(blocks) + "\n"


def index() -> str:
    """The README, whose links start at the repository's root."""
    return (REPOSITORY / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")


def without_links_out(markdown: str, page: str) -> str:
    """Links to files that the site has not become their text."""

    def kept(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link["target"]))
        known = not target.startswith("..") and (DOCS / target).is_file()
        return link[0] if known else link["text"]

    return _LINK.sub(kept, markdown)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the reference behind the pages."""
    config.nav.append({"Reference": [{Path(path).stem: path} for path, _ in reference()]})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here."""
    from mkdocs.structure.files import File

    for path, content in (("index.md", index()), *reference()):
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Of the README and docs/: they are read in the repository too, where more files are."""
    path = page.file.src_uri
    return markdown if path.startswith("reference/") else without_links_out(markdown, path)
