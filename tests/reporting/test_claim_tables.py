"""Judged claims as people read them: hand-written texts and tables."""

import pandas as pd
import pytest
from tests.claims.claim_frames import (
    GAIN,
    SAVING,
    TREND,
    frame,
    only,
    pairs,
    parse,
    run,
    trend_runs,
    without,
)
from tests.reporting.printing import cells_of, printed

from m2fdp.claims.judging import judge
from m2fdp.reporting.claim_tables import heading, measured_text, print_claims, to_markdown

BY_ITSELF = without(GAIN, "over", "as")
MISSED = TREND | {"measure": "energy_to_target"}
FANOUTS = TREND | {"measure": "accuracy", "trend": "topology.fanouts"}
AT = "at control.alpha_1 = 1, 10"


def missed(*lacking: int) -> list[dict]:
    """Runs of a trend of which some do not get to the target."""
    rows = trend_runs((10.0, 0.0), (20.0, 0.0))
    return [
        row | {"energy_to_target": None if number in lacking else row["local_steps"]}
        for number, row in enumerate(rows)
    ]


def of_fanouts(text: str, accuracy: float) -> dict:
    return run("D5", accuracy=accuracy, **{"topology.fanouts": text})


@pytest.mark.parametrize(
    ("claim", "rows", "text"),
    [
        # Means with their spread and seeds.
        (GAIN, pairs([0.80, 0.90, 0.85], [0.70, 0.82, 0.79]), "+8.0 ± 2.0 points (n = 3)"),
        (GAIN, pairs([0.8], [0.7]), "+10.0 points (n = 1)"),
        (SAVING, pairs([60.0, 80.0], [100.0, 160.0], "energy_to_target"), "+45.0 ± 7.1 % (n = 2)"),
        (
            TREND,
            trend_runs((1.0, 0.1), (2.3, 0.1), (5.1, 0.2)),
            "1.0 → 2.3 → 5.1 steps at control.alpha_1 = 1, 10, 100 (n = 2)",
        ),
        (TREND, trend_runs((7.0, 0.0), (7.0, 0.0)), f"7.0 → 7.0 steps (constant) {AT} (computed)"),
        (
            FANOUTS,
            [of_fanouts("[2, 25]", 0.7), of_fanouts("[2, 5]", 0.6)],
            "0.600 → 0.700 at topology.fanouts = [2, 5], [2, 25] (n = 1)",
        ),
        # A measure by itself has its unit.
        *(
            (BY_ITSELF | {"measure": measure}, [run(**{measure: value})], f"{text} (n = 1)")
            for measure, value, text in (
                ("accuracy", 0.8126, "0.813"),
                ("volatility", 0.01234, "0.0123"),
                ("energy_to_target", 12345.6, "12,346 J"),
                ("delay_to_target", 9.876, "9.88 s"),
                ("rounds_to_target", 40.0, "40.0 rounds"),
                ("s_trusted", 3.25, "3.2 devices"),
                ("epsilon_cloud", 4.3772, "4.377"),
                ("epsilon_cloud", float("inf"), "∞"),
            )
        ),
        # Differences have a sign, and those of shares are points.
        *(
            (GAIN | {"measure": measure}, pairs([ours], [theirs], measure), f"{text} (n = 1)")
            for measure, ours, theirs, text in (
                ("accuracy", 0.7, 0.73, "-3.0 points"),
                ("volatility", 0.0125, 0.0100, "+0.25 points"),
                ("delay_to_target", 90.0, 100.0, "-10 s"),
                ("local_steps", 5.5, 5.0, "+0.5 steps"),
            )
        ),
        # Seeds that miss the target are told: of each side, of a measure, of a trend's worst value.
        (
            SAVING,
            pairs([50.0, 60.0, None, 70.0], [100.0, None, 100.0, 100.0], "energy_to_target"),
            "+40.0 ± 14.1 % (n = 2), reached in 2 of 4 seeds",
        ),
        (
            SAVING,
            pairs([50.0, 60.0], [None, None], "energy_to_target"),
            "reached in 0 of 2 seeds",
        ),
        (
            without(SAVING, "over", "as"),
            [run(seed=seed, energy_to_target=value) for seed, value in ((0, None), (1, 9.0))],
            "9 J (n = 1), reached in 1 of 2 seeds",
        ),
        (
            BY_ITSELF | {"measure": "local_steps"},
            [run(local_steps=None)],
            "measured in 0 of 1 seed",
        ),
        (MISSED, missed(3), f"10 → 20 J {AT} (n = 1), reached in 1 of 2 seeds"),
        (MISSED, missed(2, 3), f"10 → – J {AT} (n = 0), reached in 0 of 2 seeds"),
    ],
)
def test_what_is_measured_as_text(claim, rows, text):
    assert measured_text(only(claim, *rows)) == f"{text}, ε = 0.75"


def test_nothing_is_told_of_runs_that_are_not_finished():
    assert measured_text(only(GAIN, run("p1_0.5"))) == ""
    assert measured_text(only(TREND, *trend_runs((1.0, 0.0), arm="D6"))) == ""


def test_guarantees():
    private = [run("p1_0.5", verified=None), run("hfl_dp")]
    assert measured_text(only(GAIN, *private)) == "+0.0 points (n = 1), ε = ∞"
    public = pairs([0.8], [0.7], privacy="none")
    assert measured_text(only(GAIN, *public)) == "+10.0 points (n = 1), no DP"


def two_versions(claimed: str = "trust gains 5 points") -> pd.DataFrame:
    rows = [
        *pairs([0.80, 0.8201], [0.70, 0.72], version="paper", verified=24.121),
        *pairs([0.74, 0.7601], [0.72, 0.74], version="verified"),
        *trend_runs((1.0, 0.0), (2.0, 0.0), version="verified"),
    ]
    claims = parse(GAIN | {"claim": claimed}, TREND | {"versions": ["verified"]})
    return judge(claims, frame(*rows), ["paper", "verified"], decides="paper")


def test_markdown():
    assert to_markdown(two_versions("trust|gains")) == (
        "| claim | source | paper says | measured (paper) | measured (verified) | verdict |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| trust\\|gains | J Sec. VI-B.1 | + 5 points "
        "| +10.0 ± 0.0 points (n = 2), ε = 24.2: holds "
        "| +2.0 ± 0.0 points (n = 2), ε = 0.75: in direction "
        "| holds at ε = 24.2 (aimed at 1) |\n"
        "| K rises with alpha_1 | J Sec. VI-D.3 | K rises | – "
        "| 1.0 → 2.0 steps at control.alpha_1 = 1, 10 (computed), ε = 0.75: holds | holds |\n"
    )


def test_versions_are_columns_in_the_studys_order_whichever_claim_names_them_first():
    rows = pairs([0.8], [0.7], version="verified") + pairs([0.8], [0.7], version="paper")
    some = GAIN | {"claim": "some", "versions": ["ours", "verified"]}
    every = GAIN | {"claim": "every", "versions": ["verified", "paper", "ours"]}
    judged = judge(
        parse(some, every), frame(*rows), versions=["paper", "ours", "other", "verified"]
    )
    header, _, first, second = to_markdown(judged).splitlines()
    names = ("paper", "ours", "verified")
    assert " | ".join(f"measured ({name})" for name in names) in header
    assert "other" not in header
    verdict = "+10.0 points (n = 1), ε = 0.75: open"
    assert f"| – | no finished runs | {verdict} | open |" in first
    assert f"| {verdict} | no finished runs | {verdict} | open |" in second


def test_markdown_without_versions_and_of_conditional_and_unfinished_runs():
    judged = judge(parse(GAIN), frame(*pairs([0.8] * 2, [0.7] * 2, privacy="conditional")))
    assert "| measured |" in to_markdown(judged)
    cells = "| +10.0 points (computed), ε = 0.75 cond.: holds | holds (conditional) |"
    assert cells in to_markdown(judged)
    unfinished = judge(parse(GAIN), frame(run()))
    assert "| + 5 points | no finished runs | no finished runs |" in to_markdown(unfinished)


def test_no_claims():
    assert to_markdown(judge([], frame(run()))).count("\n") == 2


def test_a_hundred_columns_hold_every_word():
    claims = two_versions()
    lines = printed(print_claims, claims, "Claims of [red]J", width=100)
    assert max(map(len, lines)) <= 100
    assert lines[0].strip() == "Claims of [red]J"
    columns = [" ".join(filter(None, column)) for column in zip(*cells_of(lines), strict=True)]
    for text in (
        "trust gains 5 points",
        "J Sec. VI-B.1: + 5 points",
        "measured (paper)",
        "+10.0 ± 0.0 points (n = 2), ε = 24.2",
        "holds at ε = 24.2 (aimed at 1)",
        "1.0 → 2.0 steps at control.alpha_1 = 1, 10 (computed), ε = 0.75",
    ):
        assert any(text in column for column in columns)


def test_a_hundred_columns_are_enough_for_long_trends_in_four_versions():
    names = ("paper", "paper_alpha_0.03", "verified", "small_data")
    rows = [
        run("D5", seed, version=name, verified=24.121)
        | {"resources.step_energy_j": 10.0**power, "local_steps": 5.0 + power}
        for name in names
        for power in range(-4, 1)
        for seed in (0, 1)
    ]
    claim = TREND | {"trend": "resources.step_energy_j"}
    judged = judge(parse(claim), frame(*rows), names)
    cells = cells_of(printed(print_claims, judged, "", width=100))
    overall = [verdict for _, _, verdict in cells if verdict]
    assert overall[:2] == ["holds at ε = 24.2", "(aimed at 1)"]
    starts = [row for row, (claim, _, _) in enumerate(cells) if claim.startswith("measured")]
    assert [cells[row][0] for row in starts] == [f"measured ({name})" for name in names]
    assert (
        max(map(len, (cells[a:b] for a, b in zip(starts, [*starts[1:], None], strict=True)))) <= 4
    )


def test_only_claims_of_papers_are_headed_as_what_a_paper_says():
    for sources, expected in (
        (["J Sec. VI-C.1", "ours"], "What the paper says"),
        (["D Table 3"], "What the paper says"),
        (["ours", "Jones 2024"], "Claims"),
    ):
        assert heading(pd.DataFrame({"source": sources})) == expected
