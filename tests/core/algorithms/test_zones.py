"""H's algorithms: who adds noise and who is trusted in the cases C1 to C7, and what is refused."""

import numpy as np
import pytest
from tests.builders import digits

from m2fdp import load_config
from m2fdp.core.algorithms import build_plan
from m2fdp.core.errors import InputError
from m2fdp.core.privacy.variance import mean_variances
from m2fdp.core.topology.network import exposed_devices, heads_of
from m2fdp.experiment import Experiment

S, M = 10, 10  # zones, devices of each
UPLOAD = {"privacy.mechanism": "upload", "training.local_aggregation": None}
# Table I of H: noise in the global sum, in units of one adder's, for s = m = 10, and halves.
CASES = {
    "C1": ({"device_noise": 1, "server_noise": 0}, S * M),
    "C2": ({"device_noise": 0, "server_noise": 1}, S),
    "C3": ({"device_noise": 0.5, "server_noise": 0.5}, 55),
    "C3, both": ({"device_noise": 1, "server_noise": 0, "both_layers": True}, S * M + S),
    "C4": ({"device_noise": 0, "server_noise": 0, "cloud_noise": True}, 1),
    "C5": (
        {"device_noise": 0.5, "device_noise_of": "devices", "server_noise": 0, "cloud_noise": True},
        51,
    ),
    "C6": ({"device_noise": 0, "server_noise": 0.5, "cloud_noise": True}, 6),
    "C7": ({"device_noise": 0.4, "server_noise": 0.4, "cloud_noise": True}, 45),
}


def config_of(algorithm="hdp_mixed", fanouts=(S, M), seed=0, zones=None, **changes):
    zones = {f"zones.{key}": value for key, value in (zones or {}).items()}
    base = {"algorithm": algorithm, "seed": seed, "topology.fanouts": list(fanouts)}
    return load_config(UPLOAD | base | zones | changes)


def network_of(algorithm="hdp_mixed", **changes):
    return build_plan(config_of(algorithm, **changes)).network


def noise_in_the_sum(network):
    """Every adder as loud against what one device moves its message by: one each, in the sum."""
    tree = network.tree
    loudness = [part * network.shares(tree.depth, 0)[0] for part in network.noise]
    messages = [
        of_layer / network.shares(layer, 0) if layer else of_layer
        for layer, of_layer in enumerate(loudness)
    ]
    arriving = (
        mean_variances(network, messages, np.ones(tree.n_devices))[0][0] + messages[0][0] ** 2
    )
    return arriving / network.shares(tree.depth, 0)[0] ** 2


@pytest.mark.parametrize("case", CASES)
def test_noise_in_the_global_sum_is_the_text_s(case):
    zones, expected = CASES[case]
    network = network_of(zones=zones)
    assert noise_in_the_sum(network) == pytest.approx(expected)
    assert not exposed_devices(network).any()


@pytest.mark.parametrize(
    ("name", "case", "trusted"),
    [("ldp", "C1", [False, False]), ("hdp", "C2", [False, True]), ("cdp", "C4", [True, True])],
)
def test_the_pure_cases_are_corners_of_the_mixed_one(name, case, trusted):
    one, other = build_plan(config_of(name)), build_plan(config_of(zones=CASES[case][0]))
    for ours, theirs in zip(one.network.noise, other.network.noise, strict=True):
        assert ours.tolist() == theirs.tolist()
    for ours, theirs in zip(one.network.trust, other.network.trust, strict=True):
        assert ours.tolist() == theirs.tolist()
    assert [bool(of_layer.all()) for of_layer in one.network.trust] == trusted
    assert one.distrusts == other.distrusts
    assert bool(one.distrusts) == trusted[0]


def test_who_is_trusted_follows_from_who_adds_noise():
    network = network_of(zones=CASES["C7"][0])
    adding = network.noise[2].reshape(S, M).any(axis=1)
    assert (adding.sum(), network.noise[1].sum()) == (4, 4)
    assert (network.trust[1] == ~adding).all()
    assert not (adding & (network.noise[1] > 0)).any()
    # Devices that noise are their own heads, all others below the cloud.
    heads = heads_of(network)
    assert (heads[:, 0] == np.where(np.repeat(adding, M), 2, 0)).all()
    mixed = network_of(zones=CASES["C5"][0])
    assert (mixed.noise[2].reshape(S, M).sum(axis=1) == 5).all()
    assert mixed.trust[1].all() and (heads_of(mixed)[:, 0] == 0).all()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("of", ["zones", "devices"])
def test_who_adds_noise_is_nested_in_the_share(seed, of):
    before, found = np.zeros(S * M, dtype=bool), set()
    for share in np.linspace(0, 1, 11):
        zones = {"device_noise": share, "device_noise_of": of, "server_noise": 0}
        network = network_of(seed=seed, zones=zones | {"cloud_noise": True})
        devices = network.noise[2] > 0
        assert devices.sum() == round(share * S * M)
        assert (before <= devices).all()
        before = devices
        found.add(tuple(devices))
    assert len(found) == 11


def test_shares_that_round_up_never_overlap_and_miss_no_zone():
    """Five zones: half of them are three, and the other half the two that are left."""
    network = network_of(fanouts=(5, 2), zones={"device_noise": 0.5, "server_noise": 0.5})
    devices, servers = network.noise[2].reshape(5, 2).all(axis=1), network.noise[1] > 0
    assert (devices.sum(), servers.sum()) == (3, 2)
    assert (devices ^ servers).all()


def test_hdp_s_super_nodes_are_the_lowest_servers():
    network = network_of("hdp", fanouts=(2, 3, 4), **{"topology.trust.ratios": [0.5, 0.5]})
    assert [bool(part.all()) for part in network.noise] == [False, False, True, False]
    assert [bool(part.all()) for part in network.trust] == [False, True, True]
    assert (heads_of(network)[:, 0] == 2).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"zones": {"device_noise": 0.6, "server_noise": 0.6}}, "server_noise = 0.6: .*sum to 1"),
        ({"zones": {"device_noise": 0.4, "server_noise": 0.4}}, "leaves 2 zones, .*cloud_noise:"),
        ({"zones": {"device_noise_of": "devices", "server_noise": 0.9}}, r"leaves 1 zones, su"),
        ({"fanouts": (2, 2, 2)}, "'hdp_mixed': needs a tree of two tiers"),
        ({"algorithm": "hdp", "fanouts": (4,)}, "'hdp': needs servers between"),
    ],
)
def test_what_is_refused_is_told_in_one_line(changes, words):
    trust = {"topology.trust.ratios": None}
    with pytest.raises(InputError, match=words) as error:
        build_plan(config_of(**changes, **trust))
    assert "\n" not in str(error.value)


def experiment_of(algorithm, zones=None, **changes):
    config = config_of(
        algorithm,
        fanouts=(3, 4),
        zones=zones,
        **{"training.rounds": 2, "training.batch_size": None, "privacy.epsilon": 1.5} | changes,
    )
    return Experiment.from_config(config, digits())


@pytest.mark.parametrize(
    ("case", "mechanism"),
    [(case, "upload") for case in CASES]
    + [(case, "gradient") for case in CASES if case not in ("C5", "C6", "C7")],
)
def test_cases_keep_their_promise_under_either_mechanism(case, mechanism):
    experiment = experiment_of("hdp_mixed", CASES[case][0], **{"privacy.mechanism": mechanism})
    assert 0.98 * 1.5 < experiment.calibrate().mechanism.epsilon(2) <= 1.5
    assert np.isfinite(experiment.train().loss)


BELOW_A_TRUSTED_CLOUD = {"device_noise": 0.4, "server_noise": 0.4, "cloud_noise": True}


@pytest.mark.parametrize(
    ("algorithm", "zones", "named", "refused"),
    [
        ("cdp", {}, "cloud", "cloud"),
        ("cdp", {}, "servers", "servers"),
        ("cdp", {}, "servers|cloud|public", "cloud"),
        ("hdp", {}, "servers|public", "servers"),
        ("hdp_mixed", BELOW_A_TRUSTED_CLOUD, "cloud|siblings", "cloud"),
    ],
)
def test_who_is_trusted_can_not_be_distrusted_by_name(algorithm, zones, named, refused):
    with pytest.raises(InputError) as caught:
        experiment_of(algorithm, zones, **{"threat.distrusted": named})
    assert (caught.value.key, caught.value.value) == ("threat.distrusted", refused)
    assert f"trusted with what it reads (algorithm: {algorithm})" in caught.value.remedy


@pytest.mark.parametrize(
    ("algorithm", "zones", "named", "bound"),
    [
        ("cdp", {}, "cloud|servers", ["cousins", "public", "siblings"]),
        ("hdp", {}, "servers|cloud|public", ["cloud", "public"]),
        ("hdp_mixed", BELOW_A_TRUSTED_CLOUD, "servers|public", None),
    ],
)
def test_the_default_means_those_who_are_not_trusted(algorithm, zones, named, bound):
    """Also where others are named beside it; untrusted servers below a trusted cloud are."""
    experiment = experiment_of(algorithm, zones, **{"threat.distrusted": named})
    everybody_else = ["cousins", "far_devices", "public", "servers", "siblings"]
    assert experiment.summary()["distrusted"] == (bound or everybody_else)


def test_cdp_refuses_un_noised_local_aggregations_of_uploads():
    changes = {"training.local_aggregation": {1: 1}, "training.local_steps": 2}
    with pytest.raises(InputError, match="devices of the same server .*mechanism: gradient"):
        experiment_of("cdp", **changes).calibrate()
    both = changes | {"privacy.mechanism": "gradient"}
    assert experiment_of("cdp", **both).calibrate().mechanism.epsilon(2) <= 1.5
