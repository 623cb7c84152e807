"""The proximal term in configurations: what is refused, and runs that have one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import experiment_of
from tests.core.experiment.test_seams import PAGE, SMALL
from tests.pages import write_files

from m2fdp.core.config import Config, recorded, released
from m2fdp.core.engine.training import Checkpointing, Progress
from m2fdp.core.errors import InputError

UPLOAD = {"privacy.mechanism": "upload"}
PULLED = {"training.proximal": 0.5, "training.learning_rate": 0.25}
GLOBAL = {"training.proximal_center": "global"}
CONTROL = {
    "control.enabled": True,
    "control.gap": "papers",
    "control.smoothness": 0.5,
    "control.step_size_factor": 20.0,
    "control.tau": 12,
    "topology.trust.ratios": [1.0],
}


def experiment(*changes):
    return experiment_of(SMALL, *changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"training.proximal": 2.5, "training.learning_rate": 0.5},
            "training.proximal = 2.5: times the step size 0.5 is 1.25, which pulls past the "
            "centre; use at most 1/eta = 2",
        ),
        ({"training.proximal": -0.1}, "training.proximal = -0.1: "),
        (
            {"training.proximal_center": "own"},
            "training.proximal_center = 'own': .*'received' or 'global'",
        ),
    ],
)
def test_what_can_t_be_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as error:
        experiment(changes)
    assert "\n" not in str(error.value)


def test_a_pull_of_exactly_all_the_way_is_allowed_and_decaying_steps_are_looked_at():
    experiment({"training.proximal": 4.0, "training.learning_rate": 0.25})
    # gamma / sqrt(2) is the largest step.
    decaying = {"training.step_size": "inverse_sqrt", "training.learning_rate": 0.5}
    experiment(decaying, {"training.proximal": 2.8})
    with pytest.raises(InputError, match="times the step size 0.3536 is 1.025"):
        experiment(decaying, {"training.proximal": 2.9})


@pytest.mark.parametrize("algorithm", ["hfl", "pedpfl", "hfl_dp", "m2fdp", "hdp", "cdp"])
def test_every_algorithm_is_pulled(algorithm):
    """Two local steps between syncs: the second is pulled."""
    longer = {"training.local_steps": 4, "algorithm": algorithm}
    pulled, plain = (
        experiment(longer, changes).train().state_dict["1.weight"]
        for changes in (PULLED, {"training.learning_rate": 0.25})
    )
    assert not torch.equal(pulled, plain)


def test_it_is_the_page_s_fedprox_with_the_same_mu(project):
    """Noise apart, which is keyed by the configuration."""
    write_files(PAGE, project)
    longer = {"training.local_steps": 4, "training.local_aggregation": {1: 2}}
    ends = []
    for changes in (
        {"algorithm": "m2fdp", "training.proximal": 0.5},
        {"algorithm": "my_fedprox:FEDPROX", "options": {"mu": 0.5}},
    ):
        run = experiment(longer, {"training.learning_rate": 0.25}, changes)
        mechanism = run.calibrate().mechanism
        quiet = replace(mechanism, noise=replace(mechanism.noise, steps=mechanism.noise.steps * 0))
        process = run.process(run.simulation(mechanisms=(quiet,)))
        state = process.start()
        for plan in run.run_plan.rounds:
            state = process.round(state, plan)
        ends.append(state.weights)
    assert torch.equal(*ends)


def test_a_run_is_resumed_to_the_same_bytes(tmp_path):
    """A checkpoint after each round holds all there is: the centre is the round's own affair."""
    run = experiment(PULLED, GLOBAL, UPLOAD, {"training.rounds": 4, "training.local_steps": 4})
    kept: list[Progress] = []
    whole = run.train(checkpointing=Checkpointing(1, kept.append))
    resumed = run.train(start=kept[1])
    assert kept[1].state.round == 2
    for name, weights in whole.state_dict.items():
        assert torch.equal(weights, resumed.state_dict[name])


def test_a_controlled_run_is_pulled_and_its_ledger_counts_no_contraction():
    """Its step sizes are known in training only, and without a pull shifts are largest."""
    plain = experiment(CONTROL, UPLOAD)
    pulled = experiment(CONTROL, UPLOAD, {"training.proximal": 0.3})
    noises = [
        np.concatenate(run.calibrate().mechanism.noise.messages).tolist() for run in (plain, pulled)
    ]
    assert noises[0] == noises[1]
    metrics = pulled.train().metrics
    assert (metrics["eta"] * 0.3 <= 1).all()
    assert pulled.run().policy.decide(Progress(pulled.process().start())).plan.proximal == 0.3
    with pytest.raises(InputError, match="training.proximal = 500.0: times the step size"):
        experiment(CONTROL, {"training.proximal": 500.0}).train()


def test_no_proximal_term_leaves_the_configuration_s_record_as_it_was():
    assert not any("proximal" in key for key in recorded(Config()))
    changed = experiment(PULLED).config
    assert released(changed)["training.proximal"] == 0.5  # noise of its own
