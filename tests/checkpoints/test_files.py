"""Checkpoints on disk, and training that goes on from one."""

import dataclasses
import math
import os
import signal
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.builders import records_of

from m2fdp import Experiment, load_config
from m2fdp.checkpoints.files import Checkpoint, clear, differences, load_latest, save
from m2fdp.core.engine.process import Slots, State
from m2fdp.core.engine.training import (
    Checkpointing,
    Listener,
    Progress,
    RoundRecord,
    evaluate,
    train,
)
from m2fdp.interruption import Interrupted, interruptible

CONFIGURATION = {
    "seed": 3,
    "training.learning_rate": 0.5,
    "topology.fanouts": [2, 2],
    "training.participants": None,
    "training.local_aggregation": {},
}


def checkpoint(round_: int) -> Checkpoint:
    # A view, of whose storage only a part belongs to it; and a NumPy scalar, as ledgers give.
    weights = torch.arange(40, dtype=torch.float32).reshape(2, 20)[1] / 7 + round_
    records = (
        RoundRecord(1, 0.1, 2.5, 1.25, 3.5, math.nan),
        RoundRecord(round_, 1 / 3, 2.0, np.float64(0.1) * round_, 7.0, np.float64(0.7)),
    )
    decisions = ({"K": 5, "eta": np.float64(0.1)}, {"K": 3, "eta": 1 / 3})
    slots = Slots({"moment": weights / 3}, {"c": weights.expand(2, -1)})
    course_state = {"beta": torch.tensor(2 / 3, dtype=torch.float64)}
    progress = Progress(State(round_, weights, slots), records, decisions, course_state)
    machines = ({"cpu_capability": "AVX512"}, {"cpu_capability": "AVX2"})
    return Checkpoint(progress, "a run", CONFIGURATION, "records", "noise", machines)


def rounds_in(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_to_the_bit(tmp_path):
    saved = checkpoint(12)
    save(tmp_path / "new" / "folder", saved)
    loaded, unreadable = load_latest(tmp_path / "new" / "folder")
    assert unreadable == []
    assert (loaded.run, loaded.configuration) == ("a run", CONFIGURATION)
    assert (loaded.trained_on, loaded.noised_with) == ("records", "noise")
    assert loaded.computed_by == saved.computed_by
    assert loaded.progress.state.round == 12
    assert torch.equal(loaded.progress.state.weights, saved.progress.state.weights)
    assert loaded.progress.state.weights.untyped_storage().nbytes() == 20 * 4
    before, after = (pd.DataFrame(list(c.progress.records)) for c in (saved, loaded))
    pd.testing.assert_frame_equal(before, after, check_exact=True)
    assert loaded.progress.decisions == saved.progress.decisions
    before, after = saved.progress.state.slots, loaded.progress.state.slots
    assert torch.equal(after.server["moment"], before.server["moment"])
    assert torch.equal(after.device["c"], before.device["c"])
    assert float(loaded.progress.course_state["beta"]) == 2 / 3


@pytest.mark.parametrize(
    ("rounds", "kept", "left"),
    [((5, 10, 100, 1000), 2, [100, 1000]), ((5, 10, 10), 1, [10]), ((10, 20, 15), 2, [10, 15])],
    ids=["the last two", "one where that is asked", "none of later rounds"],
)
def test_which_are_kept_and_half_written_ones_are_not(tmp_path, rounds, kept, left):
    *earlier, last = rounds
    for round_ in earlier:
        save(tmp_path, checkpoint(round_))
        (tmp_path / ".77.round-00000015.ckpt").write_bytes(b"half")
    save(tmp_path, checkpoint(last), kept)
    assert load_latest(tmp_path)[0].progress.state.round == last
    assert rounds_in(tmp_path) == [f"round-{round_:08}.ckpt" for round_ in left]


def test_cleared_or_never_there_is_none(tmp_path):
    assert load_latest(tmp_path / "nowhere") == (None, [])
    clear(tmp_path / "nowhere")
    save(tmp_path, checkpoint(1))
    (tmp_path / ".77.round-00000002.ckpt").write_bytes(b"half")
    clear(tmp_path)
    assert rounds_in(tmp_path) == []


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A folder with the checkpoints of rounds 10 and 20, and the bytes of the newer one."""
    folder = tmp_path_factory.mktemp("pair")
    save(folder, checkpoint(10))
    save(folder, checkpoint(20))
    newest = folder / "round-00000020.ckpt"
    return folder, newest, newest.read_bytes()


def assert_falls_back(folder, newest, content):
    newest.write_bytes(content)
    loaded, unreadable = load_latest(folder)
    assert loaded.progress.state.round == 10
    assert unreadable == [newest]


@given(share=st.floats(0, 1, exclude_max=True))
@example(share=0.0)
@example(share=0.999999)
@settings(max_examples=60)
def test_a_file_cut_anywhere_falls_back_to_the_one_before(pair, share):
    folder, newest, whole = pair
    assert_falls_back(folder, newest, whole[: int(share * len(whole))])


@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@settings(max_examples=60)
def test_a_byte_changed_anywhere_falls_back_to_the_one_before(pair, share, flip):
    folder, newest, whole = pair
    content = bytearray(whole)
    content[int(share * len(whole))] ^= flip
    assert_falls_back(folder, newest, bytes(content))


def test_an_intact_newest_is_used_again(pair):
    folder, newest, whole = pair
    newest.write_bytes(whole)
    assert load_latest(folder)[0].progress.state.round == 20


def test_a_checkpoint_with_other_columns_is_passed_over(tmp_path, monkeypatch):
    save(tmp_path, checkpoint(3))
    other = dataclasses.make_dataclass("RoundRecord", ["round", "accuracy"], frozen=True)
    monkeypatch.setattr("m2fdp.checkpoints.files.RoundRecord", other)
    assert load_latest(tmp_path) == (None, [tmp_path / "round-00000003.ckpt"])


@pytest.mark.parametrize("field", ["trained_on", "noised_with", "computed_by"])
def test_a_checkpoint_of_a_version_without_a_field_is_passed_over(tmp_path, monkeypatch, field):
    whole_save = torch.save

    def former(fields, buffer):
        whole_save({key: value for key, value in fields.items() if key != field}, buffer)

    monkeypatch.setattr("torch.save", former)
    save(tmp_path, checkpoint(3))
    assert load_latest(tmp_path) == (None, [tmp_path / "round-00000003.ckpt"])


def test_differences_name_both_values():
    configuration = CONFIGURATION | {"seed": 4, "training.local_aggregation.1": 2}
    del configuration["training.local_aggregation"]
    assert differences(CONFIGURATION, configuration) == {
        "seed": (3, 4),
        "training.local_aggregation": ({}, None),
        "training.local_aggregation.1": (None, 2),
    }
    assert differences(CONFIGURATION, dict(CONFIGURATION)) == {}


@pytest.fixture
def train_from():
    """Train 7 noisy rounds with minibatches, evaluating every two, from a start or anew."""
    config = load_config(
        {
            "topology.fanouts": [2, 2],
            "training.rounds": 7,
            "training.local_steps": 2,
            "training.local_aggregation": None,
            "training.batch_size": 5,
            "training.evaluate_every": 2,
        },
        algorithm="hfl_dp",
        threads=1,
    )
    experiment = Experiment.from_config(config, *records_of([10] * 4))
    run = experiment.run()
    shards, model = experiment.shards(), experiment.model
    on_training = replace(
        run.measures,
        evaluate=lambda weights: evaluate(model, weights, shards.features, shards.labels),
    )
    run = replace(run, measures=on_training)

    def train_from(start=None, checkpointing=None, on_round=lambda round_, logged, seconds: None):
        return train(run, Listener(on_round, lambda record: None), start, checkpointing)

    return train_from


@pytest.mark.parametrize("every", [1, 3])
def test_training_goes_on_from_every_checkpoint_as_if_never_stopped(train_from, every, tmp_path):
    checkpoints = []
    state, table = train_from(checkpointing=Checkpointing(every, checkpoints.append))
    assert [progress.state.round for progress in checkpoints] == list(range(every, 8, every))
    for progress in checkpoints:
        save(tmp_path, Checkpoint(progress, "", {}))
        start = load_latest(tmp_path)[0].progress
        resumed, rows = train_from(start)
        assert torch.equal(resumed.weights, state.weights)
        pd.testing.assert_frame_equal(rows, table, check_exact=True)


@pytest.mark.parametrize("every", [2, 100])
def test_an_interrupt_keeps_the_last_finished_round(train_from, every):
    checkpoints = []

    def interrupt(round_, logged, seconds):
        if round_ == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted) as caught, interruptible():
        train_from(checkpointing=Checkpointing(every, checkpoints.append), on_round=interrupt)
    # Round 5 is not evaluated yet, so it does not count.
    assert checkpoints[-1].state.round == 4
    assert [record.round for record in checkpoints[-1].records] == [2, 4]
    assert caught.value.__notes__ == ["round 4 is saved"]


def test_an_interrupt_before_the_first_round_ends_keeps_nothing(train_from):
    checkpoints = []

    def interrupt(round_, logged, seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train_from(checkpointing=Checkpointing(1, checkpoints.append), on_round=interrupt)
    assert checkpoints == []
    assert not hasattr(caught.value, "__notes__")
