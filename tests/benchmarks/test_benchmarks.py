"""The harness on tiny work, with the contenders that need no peer's packages."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from benchmarks.__main__ import races
from benchmarks.bars import ON_A_CLUSTER, judge, paired_ratio
from benchmarks.contenders import (
    MATMULS,
    ON_RAY,
    OPACUS,
    OURS,
    PLAIN,
    TILES,
    prepare,
    sharing,
    variants,
)
from benchmarks.contenders.engine import build
from benchmarks.race import Entry, Result, distances, race, rounds_table, summary_table
from benchmarks.report import write_report
from benchmarks.works import (
    COMPARED,
    MINIBATCHES,
    SCALE,
    WARM_UP,
    WHOLE,
    many_devices,
    private,
    proof,
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
def test_opacus_clips_as_m2fdp_does(tiny, contender):
    work = proof(private(tiny, "untrusted"))
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
    """Whatever the tree; small images are enough to find out, and a fifth of the most devices."""
    entries = [entry for race_ in races(2, "cpu") for entry in race_ if entry.contender == OURS]
    works = {replace(entry.work, shape=(1, 8, 8), model="linear") for entry in entries}
    assert max(work.devices for work in works) == 100_000
    for work in works:
        if work.devices > 20_000:
            continue
        weights = prepare(OURS, work, 1, "cpu")()
        assert weights.shape == (10 * 64,) and weights.isfinite().all()


def test_half_of_the_servers_are_trusted():
    round_ = prepare(OURS, replace(WHOLE, shape=(1, 8, 8), records=130), 1, "cpu")
    process = dict(zip(round_.__code__.co_freevars, round_.__closure__, strict=True))["process"]
    nodes = process.cell_contents.simulation.mechanisms[0].lock_step.nodes
    assert (nodes[:, 0] == 1).sum() == 5 and (nodes[:, 0] == 2).sum() == 25
    assert round_().isfinite().all()


@pytest.mark.parametrize(
    ("group", "layers"),
    [
        ("h scale: minibatches", (None,) * 4 + (1,) + (None,) * 4 + (0,)),
        ("h scale: whole shards", (None,) * 4 + (0,)),
    ],
)
def test_uploads_of_many_devices(group, layers):
    """Devices noise what they send, where their server does not; all step by themselves."""
    process, (plan, *_) = build(SCALE[group][0], 1, "cpu")
    assert plan.layers == layers
    mechanism = process.simulation.mechanisms[0]
    cloud, servers, devices = (of_layer > 0 for of_layer in mechanism.noise.messages)
    assert (int(cloud.sum()), int(servers.sum()), int(devices.sum())) == (0, 5, 500)
    assert not (servers.repeat(100) & devices).any()
    assert mechanism.clipping.batch_norm == 1 and not mechanism.noise.steps.any()


def test_a_run_is_shared_in_turns():
    def ways(threads, device):
        entries = [e for race_ in races(threads, device) for e in race_ if e.group in SCALE]
        assert {entry.work for entry in entries} == {w for works in SCALE.values() for w in works}
        return {sharing(entry.contender, entry.threads) for entry in entries}

    assert ways(2, "cpu") == {"1 process", "2 processes"}
    assert ways(1, "cpu") == ways(2, "cuda") == {"1 process"}
    on_ray = [race_ for race_ in races(2, "cpu") if race_[0].group == ON_A_CLUSTER]
    assert [race_[0].work for race_ in on_ray] == list(SCALE[MINIBATCHES])
    for race_ in on_ray:
        found = [sharing(entry.contender, entry.threads) for entry in race_]
        assert found == ["2 processes", "1 Ray node", "2 Ray nodes"]


def test_the_bar_of_a_cluster():
    (work,) = (work for work in SCALE[MINIBATCHES] if work.devices == 20_000)
    ours = Result(Entry(ON_A_CLUSTER, OURS, work, 2), (100.0, 100.0))
    for ms, passed in (((125.0, 120.0), True), ((140.0, 150.0), False)):
        results = [ours, Result(Entry(ON_A_CLUSTER, ON_RAY, work, 2), ms)]
        assert [verdict.passed for verdict in judge(results)] == [passed]
    assert [verdict.passed for verdict in judge([ours])] == [None]


@pytest.mark.full
def test_a_race_times_all_and_outlives_a_failure(tiny, tmp_path):
    entries = [Entry("tiny", name, tiny, 1) for name in (OURS, PLAIN, "Flower")]
    broken = replace(entries[2], device="nowhere")
    results = race([*entries[:2], broken], tmp_path)
    assert [len(result.ms) for result in results] == [tiny.rounds - WARM_UP] * 2 + [0]
    assert results[2].failure
    assert results[0].accuracy == pytest.approx(results[1].accuracy, abs=0.01)
    assert distances(entries[:2], tmp_path) == [0, pytest.approx(0, abs=1e-4)]
    assert all(result.peak_mib > 50 for result in results[:2])
    assert set(rounds_table(results)["contender"]) == {OURS, PLAIN}
    assert summary_table(results)["failure"].notna().tolist() == [False, False, True]


def test_no_contender_is_asked_for_more_rounds_than_it_is_made_for(tiny, tmp_path, monkeypatch):
    asked = []

    def ask(process, command):
        asked.append(command)
        return {"ms": 1.0}

    for name in ("_start", "_answer", "_end"):
        monkeypatch.setattr(f"benchmarks.race.{name}", lambda *arguments: {})
    monkeypatch.setattr("benchmarks.race._ask", ask)
    monkeypatch.setattr("benchmarks.race._finish", lambda entry, *others: Result(entry))
    race([Entry("tiny", OURS, tiny, 1)], tmp_path)
    assert tiny.rounds < len(asked) <= tiny.most_rounds


def test_bars_judge_paired_turns():
    work = COMPARED["a linear"]
    fast = Result(Entry(work.name, OURS, work, 2), (1.0, 2.0, 4.0), 100.0, 0.8)
    slow = Result(
        Entry(work.name, "pfl-research, one process", work, 2), (11.0, 22.0, 48.0), 100.0, 0.9
    )
    assert paired_ratio(slow, fast) == pytest.approx(
        tuple(np.quantile([11, 11, 12], [0.25, 0.5, 0.75]))
    )
    verdicts = {verdict.bar: verdict for verdict in judge([fast, slow])}
    assert verdicts["a linear: faster than pfl-research"].passed is True
    assert verdicts["a linear: faster than Flower"].passed is None
    for apart, passed in ((2e-3, False), (1e-6, True)):
        (same,) = [v for v in judge([fast, replace(slow, apart=apart)]) if "same work" in v.bar]
        assert same.passed is passed


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


def _scaled(group, times):
    """Results of work h, from {(devices, processes): milliseconds a round}."""
    works = {work.devices: work for work in SCALE[group]}
    return [
        Result(Entry(group, OURS, works[devices], processes), ms, 1024.0, 0.5)
        for (devices, processes), ms in times.items()
    ]


def test_bars_of_a_shared_run():
    group = "h scale: whole shards"
    times = {
        (10_000, 1): (200.0, 200.0, 220.0),
        (10_000, 2): (110.0, 100.0, 110.0),
        (100_000, 1): (1900.0, 1700.0, 1900.0),
        (100_000, 2): (1000.0, 900.0, 2200.0),
    }
    results = _scaled(group, times)

    def verdicts(results):
        return [(verdict.found, verdict.passed) for verdict in judge(results)]

    assert verdicts(results) == [
        ("2.00× at 10,000, 1.89× at 100,000", True),
        ("1.00 s", True),
        ("1.00 GiB", True),
        ("0.91× (0.90 to 1.45)", True),
    ]
    slow = _scaled(group, times | {(100_000, 2): (2200.0, 2300.0, 2400.0)})
    assert [passed for _, passed in verdicts(slow)] == [False, False, True, False]
    failed = [*results[:3], replace(results[3], ms=(), peak_mib=None, failure="InputError")]
    for incomplete in (failed, results[::2]):
        assert verdicts(incomplete) == [("not measured", None)] * 4


def test_the_report_shows_how_a_run_scales(tmp_path):
    """Without any peer's package, too."""
    group = "h scale: minibatches"
    first, second, failed = _scaled(
        group, {(1000, 1): (40.0, 60.0), (1000, 2): (20.0, 40.0), (10_000, 2): ()}
    )
    results = [first, second, replace(failed, peak_mib=None, failure="a | b")]
    write_report(tmp_path, results, judge(results), 1.0)
    report = (tmp_path / "report.md").read_text()
    assert (
        "| 1,000 | 1 process | 0.05 (0.045 to 0.055) | – | 5.00 | 1.00 | 0.500 |\n"
        "| 1,000 | 2 processes | 0.03 (0.025 to 0.035) | 1.75 (1.62 to 1.88) | 3.00 | 1.00 | 0.500 "
        "|\n"
        "| 10,000 | 2 processes | a / b | – | – | – | – |"
    ) in report
    assert (tmp_path / "benchmarks.png").stat().st_size > 0
