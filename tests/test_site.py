"""The documentation as a site: every public name is described, every page is in it."""

import ast
import importlib.util
import re
from collections.abc import Iterator
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


TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def test_every_public_name_has_a_docstring():
    bare = [
        f"{path.relative_to(SRC)}: {node.name}"
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, KINDS) and not node.name.startswith("_") and not ast.get_docstring(node)
    ]
    assert bare == []
    assert [path for path, tree in TREES.items() if tree.body and not ast.get_docstring(tree)] == []


def test_arguments_are_described_by_their_names():
    """One name a line: the site's builder looks each up in the signature, and is strict."""
    for path, tree in TREES.items():
        for text, function in described(tree):
            section = re.search(r"^Args:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
            told = re.findall(r"^    (\S.*?):(?: |$)", section[1], re.MULTILINE) if section else []
            given = function.args
            arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
            arguments += filter(None, [given.vararg, given.kwarg])
            names = {argument.arg for argument in arguments}
            assert {name.lstrip("*") for name in told} <= names, (path, function.name)


# What a text that stands alone does not begin with.
_FRAGMENT = re.compile(
    r"^    \w+: (of|in|on|at|by|for|to|with|from|as|into|per|over|under|used|given|taken)\b",
    re.MULTILINE,
)
_SECTION = re.compile(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", re.MULTILINE)


def test_what_describes_an_argument_stands_alone():
    """A noun phrase: of a name without its function, one knows what it is."""
    assert [
        (path.name, match[0])
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, KINDS)
        for section in _SECTION.findall(ast.get_docstring(node) or "")
        for match in _FRAGMENT.finditer(section)
    ] == []


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
