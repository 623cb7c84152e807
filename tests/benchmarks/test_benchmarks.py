"""The harness on tiny work, with the contenders that need no peer's packages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.__main__ import races
from benchmarks.bars import judge, paired_ratio
from benchmarks.contenders import MATMULS, OPACUS, OURS, PLAIN, TILES, prepare, variants
from benchmarks.race import Entry, Result, race, rounds_table, summary_table
from benchmarks.works import (
    COMPARED,
    WARM_UP,
    WHOLE,
    many_devices,
    private,
    work_from_json,
)


@pytest.fixture
def tiny():
    """4 devices x 6 records on small images, whole shards: no contender's sampling matters."""
    return replace(
        COMPARED["a linear"], shape=(1, 8, 8), fanouts=(2, 2), records=6, batch=6, rounds=4
    )


def test_a_work_survives_its_trip_through_json(tiny):
    text_like = {key: list(v) if isinstance(v, tuple) else v for key, v in tiny.to_json().items()}
    assert work_from_json(text_like) == tiny


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_m2fdp_and_the_plain_loop_do_the_same_work(tiny, model):
    work = replace(tiny, model=model, epochs=2)
    ours, plain = (prepare(name, work, 1, "cpu") for name in (OURS, PLAIN))
    for _ in range(3):
        torch.testing.assert_close(ours(), plain(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("contender", variants(OPACUS))
def test_opacus_clips_as_m2fdp_does(tiny, contender, monkeypatch):
    monkeypatch.setattr("benchmarks.contenders.engine.NOISE_MULTIPLIER", 0.0)
    monkeypatch.setattr("benchmarks.contenders.opacus_engines.NOISE_MULTIPLIER", 0.0)
    work = private(tiny, "untrusted")
    ours, theirs = (prepare(name, work, 1, "cpu") for name in (OURS, contender))
    for _ in range(2):
        torch.testing.assert_close(ours(), theirs(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("contender", variants(OPACUS))
def test_opacus_adds_as_much_noise_as_m2fdp(tiny, contender):
    """125,440 normals each: 3 % is ten standard errors of the ratio of standard deviations."""
    work = replace(private(tiny, "untrusted"), shape=(1, 112, 112), records=1, batch=1)
    torch.manual_seed(0)
    ours, theirs = (prepare(name, work, 1, "cpu")().std() for name in (OURS, contender))
    assert float(theirs) == pytest.approx(float(ours), rel=0.03)


def test_the_roofline_repeats_the_products_of_a_step(tiny):
    round_ = prepare(MATMULS, tiny, 1, "cpu")
    calls = round_.__closure__[0].cell_contents.calls
    # Forward and backward, at each of the local steps.
    assert len(calls) >= 2 * tiny.local_steps
    assert round_() is None


def test_two_products_over_all_records(monkeypatch):
    """As many multiplications as a step over all records takes, and no record left out."""
    shapes = []
    product = torch.mm

    def counting(left, right):
        shapes.append((*left.shape, right.shape[1]))
        return product(left, right)

    work = replace(WHOLE, shape=(1, 8, 8), records=130)
    round_ = prepare(TILES, work, 1, "cpu")
    monkeypatch.setattr(torch, "mm", counting)
    assert round_() is None
    assert len(shapes) == 2 * -(-6500 // 1024)
    assert sum(a * b * c for a, b, c in shapes) == 2 * 10 * 64 * 6500


def test_m2fdp_can_do_every_work():
    """Whatever the tree, and however many devices; small images are enough to find out."""
    entries = [entry for race_ in races(2, "cpu") for entry in race_ if entry.contender == OURS]
    works = {replace(entry.work, shape=(1, 8, 8), model="linear") for entry in entries}
    assert max(work.devices for work in works) == 10_000
    for work in works:
        weights = prepare(OURS, work, 1, "cpu")()
        assert weights.shape == (10 * 64,) and weights.isfinite().all()


def test_half_of_the_servers_are_trusted():
    round_ = prepare(OURS, replace(WHOLE, shape=(1, 8, 8), records=130), 1, "cpu")
    process = dict(zip(round_.__code__.co_freevars, round_.__closure__, strict=True))["process"]
    nodes = process.cell_contents.simulation.mechanisms[0].lock_step.nodes
    assert (nodes[:, 0] == 1).sum() == 5 and (nodes[:, 0] == 2).sum() == 25
    assert round_().isfinite().all()


@pytest.mark.full
def test_a_race_times_all_and_outlives_a_failure(tiny, tmp_path):
    entries = [Entry("tiny", name, tiny, 1) for name in (OURS, PLAIN, "Flower")]
    broken = replace(entries[2], device="nowhere")
    results = race([*entries[:2], broken], tmp_path)
    assert [len(result.ms) for result in results] == [tiny.rounds - WARM_UP] * 2 + [0]
    assert results[2].failure
    assert results[0].accuracy == pytest.approx(results[1].accuracy, abs=0.01)
    assert all(result.peak_mib > 50 for result in results[:2])
    assert set(rounds_table(results)["contender"]) == {OURS, PLAIN}
    assert summary_table(results)["failure"].notna().tolist() == [False, False, True]


def test_bars_judge_paired_turns():
    work = COMPARED["a linear"]
    fast = Result(Entry(work.name, OURS, work, 2), (1.0, 2.0, 4.0), 100.0, 0.8)
    slow = Result(
        Entry(work.name, "pfl-research, one process", work, 2), (6.0, 6.0, 40.0), 100.0, 0.9
    )
    assert paired_ratio(slow, fast) == pytest.approx(
        tuple(np.quantile([6, 3, 10], [0.25, 0.5, 0.75]))
    )
    verdicts = {verdict.bar: verdict for verdict in judge([fast, slow])}
    assert verdicts["a linear: faster than pfl-research"].passed is True
    assert verdicts["a linear: faster than Flower"].passed is None
    (parity,) = [verdict for bar, verdict in verdicts.items() if "accuracy" in bar]
    assert parity.passed is False


def test_what_failed_is_not_measured():
    works = [many_devices(fanouts) for fanouts in ((10, 10), (100, 10), (100, 100))]
    results = [Result(Entry("e many devices", OURS, work, 2), (5.0,), 100.0) for work in works]
    failed = replace(results[2], ms=(), peak_mib=None, failure="InputError")

    def found(*results):
        return [(v.bar.split(": ")[1], v.found, v.passed) for v in judge(results)]

    memory, cost = "peak memory of 10,000 devices", "cost of a device-step, dearest over cheapest"
    assert found(*results[:2], failed) == [
        (memory, "not measured", None),
        (cost, "not measured of 10,000 devices", None),
    ]
    assert found(*results) == [
        (memory, "0.10 GiB", True),
        (cost, "100.00× (10.0 µs at 100, 1.0 µs at 1,000, 0.1 µs at 10,000)", False),
    ]
