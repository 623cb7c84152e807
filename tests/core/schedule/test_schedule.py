"""When local and global aggregations happen."""

import pytest

from m2fdp.core.config import TrainingConfig
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.schedule import build_schedule


def training(**changes):
    three_rounds = {"rounds": 3, "local_steps": 20, "learning_rate": 2, "local_aggregation": None}
    return TrainingConfig(**(three_rounds | changes))


def test_aggregations_of_one_round():
    schedule = build_schedule(training(local_aggregation={1: 10, 2: 5}), depth=3)
    due = {step: schedule.aggregation_layer(step) for step in range(1, 21)}
    assert {step: layer for step, layer in due.items() if layer is not None} == {
        5: 2,
        10: 1,  # both are due: the layer nearest the cloud wins
        15: 2,
        20: 0,  # the global aggregation alone
    }


def test_step_sizes():
    assert build_schedule(training(), depth=2).step_size(3) == 2
    decaying = build_schedule(training(step_size="inverse_sqrt"), depth=2)
    assert decaying.step_size(3) == 1.0  # 2 / sqrt(3 + 1)


@pytest.mark.parametrize(("layer", "depth"), [(0, 2), (2, 2), (1, 1), (-1, 3)])
def test_layers_without_servers_are_refused(layer, depth):
    valid = f"1 to {depth - 1}" if depth > 1 else r"none \(null\)"
    with pytest.raises(InputError, match=f"training.local_aggregation.*valid layers: {valid}"):
        build_schedule(training(local_aggregation={layer: 5}), depth)
