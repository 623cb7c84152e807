"""The table of what secure aggregation takes, of small groups; and that it keeps to its bars."""

import pytest
from benchmarks.secure_sums import Setting, main, measure

from benchmarks import secure_sums


def test_a_row_for_each_setting(monkeypatch, capsys):
    small = (Setting("3", (3,), 10), Setting("2 of 4, one silent", (4, 4), 10, silent=1))
    monkeypatch.setattr(secure_sums, "SETTINGS", small)
    main(["--rounds", "1"])
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split(" | ")[0] for row in rows] == ["| 3", "| 2 of 4, one silent"]
    _, masked, _ = measure(small[1], 1)
    assert masked == 2 * 3 * 4 * 10  # of two groups with three who stay


@pytest.mark.full
@pytest.mark.parametrize(
    "setting, most_ms", [(Setting("50", (50,)), 2000), (Setting("zones", (*(5,) * 10, 10)), 300)]
)
def test_a_round_is_short(setting, most_ms):
    """On an idle core; the best of five is allowed five times as much."""
    times, *_ = measure(setting, 5)
    assert times[0] < 5 * most_ms
