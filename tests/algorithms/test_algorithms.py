"""Algorithms as data: tree, trust, noise and schedule."""

import numpy as np
import pytest

from m2fdp.algorithms import (
    ALGORITHMS,
    Algorithm,
    Plan,
    build_plan,
    check_config,
    check_data,
    get_algorithm,
    surprises,
)
from m2fdp.config import (
    ModelConfig,
    PrivacyConfig,
    TopologyConfig,
    TrainingConfig,
    TrustConfig,
    parse_config,
)
from m2fdp.errors import InputError
from m2fdp.topology.network import Network, heads_of, noise_plan
from m2fdp.topology.trust import all_untrusted

TOPOLOGY = TopologyConfig(fanouts=[4, 3], trust=TrustConfig(ratios=[0.5]))
TRAINING = TrainingConfig(rounds=2, local_steps=4, learning_rate=1, local_aggregation={1: 2})


def plan_of(name, topology=TOPOLOGY):
    return build_plan(name, topology, TRAINING, seed=0)


def noisy(plan):
    return [int(noise.sum()) for noise in plan.network.noise]


def test_the_four_rows_of_the_design():
    assert noisy(plan_of("hfl")) == [0, 0, 0]
    assert not plan_of("hfl").private
    assert noisy(plan_of("hfl_dp")) == [0, 0, 12]
    assert noisy(plan_of("m2fdp")) == [0, 2, 6]
    assert noisy(plan_of("pedpfl")) == [0, 12]
    assert plan_of("pedpfl").network.tree.depth == 1
    assert plan_of("pedpfl").schedule.aggregation_layer(2) is None
    assert plan_of("hfl_dp").schedule.aggregation_layer(2) == 1
    assert [a.name for a in ALGORITHMS.values() if a.role == "method"] == ["m2fdp"]


def test_without_trusted_servers_m2fdp_is_hfl_dp():
    nobody = TopologyConfig(fanouts=[4, 3], trust=TrustConfig(ratios=[0.0]))
    for one, other in zip(
        plan_of("m2fdp", nobody).network.noise, plan_of("hfl_dp").network.noise, strict=True
    ):
        np.testing.assert_array_equal(one, other)


def with_algorithm(monkeypatch, plan):
    monkeypatch.setitem(ALGORITHMS, "own", Algorithm("own", "Own", "method", plan))


def test_an_own_algorithm_that_leaves_devices_in_clear_is_refused(monkeypatch):
    """Its servers noise what they send, but nobody hides what they receive."""

    def plan(tree, trust, schedule):
        noise = (np.zeros(1), np.ones(4), np.zeros(12))
        return Plan(Network(tree, all_untrusted(tree), noise), schedule, private=True)

    with_algorithm(monkeypatch, plan)
    with pytest.raises(InputError, match="algorithm = 'own': .*12 devices, such as device-0"):
        plan_of("own")


def test_an_own_algorithm_may_add_more_noise_than_it_needs(monkeypatch):
    def plan(tree, trust, schedule):
        everywhere = (np.zeros(1), *(np.ones(len(parents)) for parents in tree.parents))
        return Plan(Network(tree, trust, everywhere), schedule, private=True)

    with_algorithm(monkeypatch, plan)
    needed = heads_of(plan_of("m2fdp").network)
    np.testing.assert_array_equal(heads_of(plan_of("own").network), needed)


def test_an_own_algorithm_that_trusts_the_cloud_is_refused(monkeypatch):
    def plan(tree, trust, schedule):
        everybody = tuple(np.ones(tree.n_nodes(n), dtype=bool) for n in range(tree.depth))
        return Plan(Network(tree, everybody, noise_plan(tree, trust)), schedule, private=True)

    with_algorithm(monkeypatch, plan)
    with pytest.raises(InputError, match="trusts the cloud"):
        plan_of("own")


def test_unknown_algorithm():
    with pytest.raises(InputError, match="algorithm = 'fedavg': .*hfl, pedpfl, hfl_dp, m2fdp"):
        get_algorithm("fedavg")


VALID = {
    "algorithm": "m2fdp",
    "dataset": {},
    "partition": {},
    "topology": {"fanouts": [4, 3], "trust": {"ratios": [0.5]}},
    "model": {},
    "training": {"rounds": 1, "local_steps": 1, "learning_rate": 1},
    "privacy": {"epsilon": 1, "delta": 1e-5, "clipping_norm": 1},
    "resources": {},
}


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"algorithm": "fedavg"}, "algorithm"),
        ({"topology": {"fanouts": [4, 3], "trust": {"ratios": [0.5, 1]}}}, "topology.trust.ratios"),
        ({"topology": {"edges": "absent.csv"}}, "topology.edges"),
        ({"model": {"name": "resnet"}}, "model.name"),
        ({"training": VALID["training"] | {"local_aggregation": {2: 1}}}, "training.local_agg"),
        ({"training": VALID["training"] | {"participants": 4}}, "training.participants"),
    ],
)
def test_blocks_that_contradict_one_another(change, key):
    check_config(parse_config(VALID))
    with pytest.raises(InputError) as caught:
        check_config(parse_config(VALID | change))
    assert caught.value.key.startswith(key)


def surprises_of(algorithm="m2fdp", control=None, **training):
    training = {"rounds": 5, "local_steps": 4, "learning_rate": 1} | training
    return surprises(
        parse_config(
            VALID | {"algorithm": algorithm, "training": training, "control": control or {}}
        )
    )


@pytest.mark.parametrize("every", [1, 3])
def test_local_aggregations_that_come_surprise_nobody(every):
    assert surprises_of(local_aggregation={1: every}) == []
    assert surprises_of(local_aggregation={1: every}, local_steps=1) == []  # there can be none


@pytest.mark.parametrize("every", [4, 9])
def test_a_local_aggregation_that_never_comes_is_told(every):
    (line,) = surprises_of(local_aggregation={1: every})
    assert line.startswith(f"training.local_aggregation.1 = {every}: never comes")
    assert surprises_of("pedpfl", local_aggregation={1: every}) == []  # a star has none
    chosen = {"enabled": True, "step_size_factor": 400}  # the controller may take up to 40 steps
    assert surprises_of(control=chosen, local_aggregation={1: every}) == []


def test_the_papers_step_size_factor_is_told():
    (line,) = surprises_of(control={"enabled": True})
    assert line.startswith("control.step_size_factor = 1 is J's own")
    assert "try 20 " in line
    assert surprises_of(control={"enabled": True, "step_size_factor": 20}) == []


def test_cuda_where_there_is_none(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="device = 'cuda': no CUDA device"):
        check_config(parse_config(VALID | {"device": "cuda"}))


def check(shape=(1, 8, 8), model="cnn12", training=TRAINING, **privacy):
    config = PrivacyConfig(**{"epsilon": 1, "delta": 1e-5, "clipping_norm": 1} | privacy)
    check_data(shape, 10, np.array([10, 100]), ModelConfig(name=model), training, config)


def test_data_that_model_or_delta_refuse():
    check()
    with pytest.raises(InputError, match="model.name"):
        check(shape=(1, 4, 4))
    with pytest.raises(InputError, match="privacy.delta"):
        check(delta=0.02)


def test_a_delta_that_pays_for_all_that_is_ever_drawn():
    """Eight steps with 0.01 expected records of 100 draw a record with chance 8e-4."""
    rarely = TRAINING.model_copy(update={"batch_size": 0.01})
    check(training=rarely, delta=7e-4)
    with pytest.raises(InputError, match=r"privacy.delta = 0.0009: must be below 0.0008"):
        check(training=rarely, delta=9e-4)
    # A device as a whole takes part for certain.
    check(training=rarely, delta=9e-4, mechanism="upload", unit="device")


def test_a_drift_that_model_and_step_size_do_not_have():
    """beta = 64 features / 4, and minibatches of 5 of 100 records may be 20 times too large."""
    drift = {"mechanism": "upload", "drift": "non_expansive", "model": "logistic"}
    for batch_size, largest in ((None, 2 / 16), (5, 0.05 * 2 / 16)):
        for learning_rate in (0.99 * largest, 1.01 * largest):
            training = TRAINING.model_copy(
                update={"learning_rate": learning_rate, "batch_size": batch_size}
            )
            if learning_rate < largest:
                check(training=training, **drift)
                continue
            with pytest.raises(InputError, match=f"training.learning_rate.*{largest:.4g} here"):
                check(training=training, **drift)
    with pytest.raises(InputError, match="privacy.drift.*model.name: softmax.*use model.name: log"):
        check(**drift | {"model": "softmax"})
