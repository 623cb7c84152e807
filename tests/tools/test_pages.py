"""What is read off pages of results, and what is filled into them."""

from pathlib import Path

import pytest
from tools.pages import Page, counts, index, recorded, tables

from m2fdp.core.errors import InputError

TEXT = """# J

## J Fig. 1, ours

```
kedro study fig1 --params=dataset.root=FOLDER
```

| algorithm | accuracy |
|---|---:|
| a | 0.5 |

### What the paper says

| claim | source | measured (paper) | measured (verified) | verdict |
|---|---|---|---|---|
| A gains | J Sec. I | +9.0 ± 1.0 (n = 5), ε = 1500: holds | +9 (n = 5), ε = 1.00: holds | holds |
| B gains | J Sec. II | – | +1.0 ± 1.0 (n = 4), ε = 0.990 cond.: holds | holds (conditional) |
| C gains | J Sec. I | +9.0 ± 1.0 (n = 3), ε = 77.0: holds | +1 ± 1 (n = 3), ε = 1.00: fails | \
holds only at verified ε = 77.0 (nominal 1) |
| D gains | J Sec. I | +9.0 ± 1.0 (n = 3), ε = 77.0: holds | +1 ± 1 (n = 3), ε = 1.00: open | \
open; holds at verified ε = 77.0 (nominal 1) |
| E gains | J Sec. I | +9.0 (n = 2), no DP: fails | – | fails |
| F gains | J Sec. I | no finished runs | – | no finished runs |
| G gains | J Sec. I | ∞ (n = 3), ε = ∞: fails | +1 (n = 3), ε = 2.00: fails | fails |
| I gains | J Sec. III | -9 (n = 4), ε = 900: fails | +9 (n = 4), ε = 1.00: holds | holds in part |
| H gains | this project's goal | 0.1 (n = 3), ε = 2.00: holds | – | holds |

## Features

<!-- study: features --env=cifar10 -->

| claim | source |
|---|---|
| K | J Sec. I |

```
kedro study features --env=cifar10
```

<!-- end -->

| a | b |
|---|---|
| `kedro study sweep --over=seed=1` | |
"""
PAGE = Page(Path("j.md"), "results/j.md", TEXT)


def test_a_table_is_of_the_study_below_whose_command_or_in_whose_block_it_stands():
    found = [(t.identity, t.section, t.made, t.of_claims, len(t.rows)) for t in tables(PAGE)]
    assert found == [
        ("fig1", "J Fig. 1, ours", False, False, 1),
        ("fig1", "J Fig. 1, ours", False, True, 9),
        ("features-cifar10", "Features", True, True, 1),
        ("features-cifar10", "Features", False, False, 1),
    ]
    number, row = next(tables(PAGE)).rows[0]
    assert TEXT.splitlines()[number - 1] == "| a | 0.5 |" and row == {
        "algorithm": "a",
        "accuracy": "0.5",
    }
    assert list(PAGE.studies()) == ["fig1", "features-cifar10", "sweep"]
    assert recorded([PAGE]) == {"features-cifar10": "features --env=cifar10"}


def test_only_blocks_are_filled():
    filled = PAGE.filled(lambda kind, words: f"{kind} of {words}")
    block = "<!-- study: features --env=cifar10 -->\nstudy of features --env=cifar10\n\n"
    head, tail = TEXT.split("<!-- study: features --env=cifar10 -->\n")
    assert filled.text == head + block + tail[tail.index("<!-- end -->") :]
    assert filled.filled(lambda kind, words: f"{kind} of {words}") == filled
    empty = Page(
        PAGE.path, "", "<!-- studies -->\n<!-- end -->\n\n<!-- claims: J -->\n<!-- end -->"
    )
    assert list(empty.blocks()) == [("studies", ""), ("claims", "J")]


def claims_of(text=TEXT):
    """The tables of claims that have verdicts."""
    return [each for each in tables(Page(PAGE.path, PAGE.link, text)) if "verdict" in each.columns]


def test_the_index_has_claims_of_one_verdict_in_a_row_with_the_epsilon_that_promises_most():
    claims = claims_of()
    rows = [line.split(" | ")[:-1] for line in index("J", claims).splitlines()[2:]]
    assert rows == [
        ["| Sec. I", "A gains", "holds", "1.00", "5"],
        ["| Sec. II", "B gains", "holds (conditional)", "0.990", "4"],
        ["| Sec. III", "I gains (fails in paper)", "holds in part", "1.00", "4"],
        ["| Sec. I", "C gains", "holds at the ε beside only", "77.0", "3"],
        ["| Sec. I", "D gains (holds at verified ε = 77.0)", "open", "1.00", "3"],
        ["| Sec. I", "E gains", "open (fails in 2 seeds)", "none", "2"],
        ["| Sec. I", "F gains", "open (not run)", "", ""],
        ["| Sec. I", "G gains", "fails", "2.00", "3"],
    ]
    assert "[J Fig. 1, ours](results/j.md#j-fig-1-ours)" in index("J", claims)
    assert counts("J", claims) == [2, 1, 1, 3, 1]


def test_claims_of_a_verdict_share_a_row_and_their_epsilons_are_a_span():
    claims = claims_of(TEXT.replace("holds (conditional) |", "holds |"))
    first = index("J", claims).splitlines()[2]
    assert first.startswith(
        "| Sec. I; Sec. II | A gains<br>B gains | holds | 0.990 to 1.00 | 4 to 5"
    )


def test_a_row_of_other_cells_than_columns_is_refused():
    with pytest.raises(InputError, match=r"j\.md:3 = 'b': begins a row of 1; valid: 2 cells"):
        list(tables(Page(Path("j.md"), "", "| a | x |\n|---|---|\n| b |\n")))


def test_a_verdict_without_a_number_of_seeds_is_refused():
    with pytest.raises(InputError, match=r"j\.md:2\d = 'E gains'.*n = "):
        index("J", claims_of(TEXT.replace(" (n = 2)", "")))
