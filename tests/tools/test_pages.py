"""What is read off pages of results, and what is filled into them."""

from pathlib import Path

from tools.pages import Page, identity_of, linked, recorded, words_of

TEXT = """# J

## J Fig. 1, ours

`kedro study fig1 --params=dataset.root=FOLDER`

## Features

<!-- study: features --env=cifar10 -->

| claim | source |
|---|---|
| K | J Sec. I |

<!-- end -->

| `kedro study sweep --over=seed=1` | |
"""
PAGE = Page(Path("j.md"), "results/j.md", TEXT)


def test_a_page_names_studies_by_their_commands_and_blocks():
    assert list(PAGE.studies()) == ["fig1", "sweep", "features-cifar10"]
    assert recorded([PAGE]) == {"features-cifar10": "features --env=cifar10"}
    assert PAGE.sections() == {"features-cifar10": "Features"}
    assert words_of("fig1 --env=a --params=b=c") == ("fig1", "a")
    assert identity_of("fig1 --params=b=c") == "fig1"


def test_a_link_goes_to_a_section_as_pages_anchor_it():
    assert linked("j.md", "J Fig. 1, ours") == "[J Fig. 1, ours](j.md#j-fig-1-ours)"


def test_only_blocks_are_filled():
    filled = PAGE.filled(lambda kind, words: f"{kind} of {words}")
    block = "<!-- study: features --env=cifar10 -->\nstudy of features --env=cifar10\n\n"
    head, tail = TEXT.split("<!-- study: features --env=cifar10 -->\n")
    assert filled.text == head + block + tail[tail.index("<!-- end -->") :]
    assert filled.filled(lambda kind, words: f"{kind} of {words}") == filled
    text = "<!-- figures -->\n<!-- end -->\n\n<!-- claims: J -->\n<!-- end -->"
    assert list(Page(PAGE.path, "", text).blocks()) == [("figures", ""), ("claims", "J")]
