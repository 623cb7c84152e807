"""The documentation as a site: every public name is described, every page is in it."""

import ast
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from tests.finished import REPOSITORY
from tests.pages import PAGES

SRC = REPOSITORY / "src"
MODULES = sorted((SRC / "m2fdp").rglob("*.py"))


@pytest.fixture(scope="module")
def site() -> ModuleType:
    """What mkdocs calls; no part of the package, and mkdocs itself is not needed."""
    spec = importlib.util.spec_from_file_location("site_hooks", REPOSITORY / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_every_public_name_has_a_docstring(path: Path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    public = [
        node
        for node in tree.body
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
    ]
    assert [node.name for node in public if not ast.get_docstring(node)] == []
    assert ast.get_docstring(tree) or not tree.body


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_arguments_are_described_by_their_names(path: Path):
    """One name a line: the site's builder looks each up in the signature, and is strict."""
    for text, function in described(ast.parse(path.read_text(encoding="utf-8"))):
        section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
        told = re.findall(r"^    (\S.*?):(?: |$)", section[1], re.MULTILINE) if section else []
        given = function.args
        arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        arguments += filter(None, [given.vararg, given.kwarg])
        assert {name.lstrip("*") for name in told} <= {argument.arg for argument in arguments}


# What a text that stands alone does not begin with.
_FRAGMENT = re.compile(
    r"^    \w+: (of|in|on|at|by|for|to|with|from|as|into|per|over|under|used|given|taken)\b",
    re.MULTILINE,
)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SRC)))
def test_what_describes_an_argument_stands_alone(path: Path):
    """A noun phrase: of a name without its function, one knows what it is."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds)
    ]
    sections = [
        section
        for node in nodes
        for section in re.findall(
            r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)",
            ast.get_docstring(node) or "",
            re.MULTILINE,
        )
    ]
    assert [match[0] for text in sections for match in _FRAGMENT.finditer(text)] == []


def described(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Docstrings of public functions, and of public classes for what makes one of them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield ast.get_docstring(node) or "", node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                    yield ast.get_docstring(node) or "", member


def test_every_module_is_in_the_reference(site):
    pages = dict(site.reference())
    told = [line[4:] for text in pages.values() for line in text.splitlines() if line[:4] == "::: "]
    names = [".".join(path.relative_to(SRC).with_suffix("").parts) for path in MODULES]
    expected = {n.removesuffix(".__init__") for n in names if not n.endswith("__main__")}
    assert sorted(told) == sorted(expected)
    assert "reference/core/topology.md" in pages


def pages_of(navigation: list) -> Iterator[str]:
    """The files that a navigation names, whatever their groups."""
    for entry in navigation:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else pages_of(value)


def test_every_page_is_in_the_navigation():
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]
    docs = REPOSITORY / "docs"
    written = [page.relative_to(docs).as_posix() for page in PAGES[1:]]
    assert sorted(pages_of(navigation)) == sorted(["index.md", *written])
    assert len(navigation) == 5


def test_the_reference_is_grouped_by_rooms_in_the_contracts_order(site):
    library, frame = (list(group) for group in site.rooms().values())
    assert {"command_errors", "errors", "files"}.isdisjoint(library)
    assert library[0] == "reporting" and "core/privacy" in library
    assert {"pipelines", "expectations", "studies", "commands"} == set(frame)
    assert list(pages_of(site.navigation())) == [path for path, _ in site.reference()]


def test_links_of_the_readme_lead_to_the_sites_pages_or_nowhere(site):
    index = site.without_links_out(site.index(), "index.md")
    assert "](docs/" not in index
    assert "](privacy.md)" in index
    assert "](LICENSE)" not in index


def test_links_beyond_the_site_become_their_text(site):
    text = "[a](../conf/base) [b](privacy.md#x) [c](https://example.org) [d](#here)"
    expected = "a [b](privacy.md#x) [c](https://example.org) [d](#here)"
    assert site.without_links_out(text, "control.md") == expected
