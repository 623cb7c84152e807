"""`topology.weights: samples` from the configuration to what is trained and promised."""

import numpy as np
import pytest
from tests.builders import experiment_of

from m2fdp.core.config import load_config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config

BY_SAMPLES = {
    "topology": {"fanouts": "2|3", "weights": "samples"},
    "partition": {"scheme": "quantity"},
    "training": {"rounds": 2, "local_steps": 2, "local_aggregation": {1: 1}},
    "threads": 1,
}


@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
@pytest.mark.parametrize("algorithm", ["m2fdp", "hfl_dp", "pedpfl"])
def test_devices_weigh_by_their_records_in_training_and_ledger(algorithm, mechanism):
    experiment = experiment_of(
        BY_SAMPLES, {"algorithm": algorithm, "privacy": {"mechanism": mechanism}}
    )
    sizes, network = experiment.samples.sizes, experiment.network
    assert network.shares(network.tree.depth, 0) == pytest.approx(sizes / sizes.sum())
    trained = experiment.train()
    assert trained.epsilon <= 4
    ledger = experiment.ledger()
    assert ledger.loc[ledger["distrusted"], "epsilon"].max() == trained.epsilon


def test_without_privacy_all_records_count_alike():
    """One full step is that of central training on all records, and of no uniform mean."""
    one_step = {"training": {"rounds": 1, "local_steps": 1, "local_aggregation": None}}
    found = [
        experiment_of(
            BY_SAMPLES, one_step, {"algorithm": "hfl", "topology": {"weights": weights}}
        ).train()
        for weights in ("samples", "uniform")
    ]
    central = experiment_of(
        BY_SAMPLES,
        one_step,
        {"algorithm": "hfl", "topology": {"fanouts": "1|1"}, "partition": {"scheme": "iid"}},
    ).train()
    for name, value in central.state_dict.items():
        np.testing.assert_allclose(found[0].state_dict[name], value, rtol=0, atol=1e-5)
        assert not np.allclose(found[1].state_dict[name], value, rtol=0, atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "words"), [({"training": {"participants": 2}}, "participants: null")]
)
def test_where_it_is_not_proven_it_is_refused(changes, words):
    config = load_config(BY_SAMPLES, changes)
    with pytest.raises(InputError, match=f"^topology.weights = 'samples': .*{words}"):
        check_config(config)
