"""What the site has beyond the pages of docs/: the README as its index, and the reference.

The reference has one page for each room of src/m2fdp, in the order of the import contract, so that
no list of modules has to be kept. Modules that are no room's stand together: those of the frame,
and the ground that the library stands on.
"""

from __future__ import annotations

import ast
import importlib.util
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
FRAME, LIBRARY = "The frame", "The library"
ALONE = {FRAME: "commands", LIBRARY: "ground"}
# Words of the glossary that pages use in their everyday sense as well: no tooltips.
EVERYDAY = {"feature", "layer", "module", "plan", "share", "unit", "version"}

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?\)")


def order() -> list[str]:
    """The names of src/m2fdp from the top of the import contract to its ground."""
    spec = importlib.util.spec_from_file_location("rooms", DOCS / "rooms.py")
    picture = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(picture)
    names = ["m2fdp", *(name for layer in picture.layers() for name in layer)]
    inner = sorted(f"core/{path.parent.name}" for path in (PACKAGE / "core").glob("*/__init__.py"))
    return [*names, *inner]


def rooms() -> dict[str, dict[str, list[str]]]:
    """The modules of each room, by group and by the room's name."""
    found: dict[str, dict[str, list[str]]] = {LIBRARY: {}, FRAME: {}}
    names = order()
    library = names[names.index("reporting") :]
    for name in sorted(names, key=lambda name: not (PACKAGE / name).is_dir()):  # rooms first
        folder = PACKAGE / name
        paths = folder.rglob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
        if name == "m2fdp":
            paths = [PACKAGE / "__init__.py"]
        if name == "core":
            paths = folder.glob("*.py")
        modules = sorted(module_of(path) for path in paths if path.stem != "__main__")
        group = LIBRARY if name in library else FRAME
        room = name if folder.is_dir() else ALONE[group]
        if modules:
            found[group].setdefault(room, []).extend(modules)
    return found


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    parts = ("m2fdp", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def sentence(module: str) -> str:
    """The first sentence of a module's docstring; its name where it has none."""
    path = REPOSITORY / "src" / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or module).split("\n\n")
    return re.split(r"\.(?= [A-Z]|$)", " ".join(text[0].split()))[0]


def reference() -> Iterator[tuple[str, str]]:
    """Path and Markdown of the reference's pages."""
    for group in rooms().values():
        for room, modules in group.items():
            blocks = [f"# {room}", *map(_block, modules)]
            yield f"reference/{room}.md", "\n\n".join(blocks) + "\n"


def _block(module: str) -> str:
    """A module below what it is for."""
    title = sentence(module).replace('"', "'")
    label = module.rpartition(".")[2]
    options = f'    options:\n      heading: "{title}"\n      toc_label: {label}'
    return f"::: {module}\n{options}"


def navigation() -> list[dict[str, list[dict[str, str]]]]:
    """The reference's part of the navigation."""
    return [
        {group: [{room: f"reference/{room}.md"} for room in names]}
        for group, names in rooms().items()
    ]


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


def abbreviations() -> str:
    """The glossary's terms as Markdown's abbreviations, which show their meaning under the
    cursor."""
    rows = re.findall(
        r"^\| (?!word )([^|]+) \| (.+) \|$", (DOCS / "glossary.md").read_text("utf-8"), re.M
    )
    lines = [
        f"*[{form}]: {meaning.replace('`', '')}"
        for terms, meaning in rows
        for term in terms.split(", ")
        if term not in EVERYDAY
        for form in (term, f"{term}s")
    ]
    return "\n\n" + "\n".join(lines) + "\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the API behind the pages of the group `Reference`."""
    (group,) = (group for group in config.nav if "Reference" in group)
    group["Reference"].append({"API": navigation()})
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
    if path.startswith("reference/"):
        return markdown
    terms = "" if path == "glossary.md" else abbreviations()
    return without_links_out(markdown, path) + terms
