"""Gradients that servers add up by device: the head's own sum, but for rounding."""

import pytest
import torch
from tests.builders import experiment_of

from m2fdp.deployment.rehearsed import as_nodes


@pytest.mark.parametrize("unit", ["record", "device"])
def test_the_sum_by_device_is_the_heads_up_to_rounding(unit):
    experiment = experiment_of(
        {
            "topology.fanouts": [1, 2, 2],
            "topology.trust.ratios": [1.0, 1.0],
            "training.rounds": 2,
            "privacy.unit": unit,
            "threads": 1,
        }
    )
    assert experiment.calibration.mechanism.lock_step.nodes[:, 0].tolist() == [1]
    ends = []
    for by_device in (False, True):
        process = experiment.process()
        process = as_nodes(process) if by_device else process
        state = process.start()
        for plan in experiment.run_plan.rounds:
            state = process.round(state, plan, lambda direction, layer, models: None)
        process.executor.workers.end()
        ends.append(state.weights)
    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)
    assert not torch.equal(*ends), "they are added in another order"
