"""Keys that nothing in a run reads: one refusal for all, and every key with readers is here."""

import pytest
from tests.builders import digits

from m2fdp import Experiment
from m2fdp.core.algorithms import ALGORITHMS, build_plan
from m2fdp.core.config import Config, load_config, readers
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.experiment.idle import READERS, idle_keys
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.mechanisms import MECHANISMS
from m2fdp.core.privacy.mechanisms.gradient import Gradient
from m2fdp.tiers.ways import FEDAVG

FEATURES = {"features.map": "scattering"}
IID = {"partition.scheme": "iid"}
PAPERS = {"control.enabled": True, "control.gap": "papers"}
# By key: another value than its default, what makes it idle if the defaults do not, and the reason.
IDLE = {
    "dataset.root": ("elsewhere", {}, "dataset.name: fashion_mnist or mnist or emnist_letters"),
    "dataset.download": (True, {}, "cifar10 or cifar100, not to digits"),
    "dataset.shape": ([32, 32, 3], {}, "dataset.name: synthetic, not to digits"),
    "dataset.classes": (5, {}, "dataset.name: synthetic"),
    "dataset.records": (600, {}, "dataset.name: synthetic"),
    "partition.held_out_by": ("devices", {}, "partition.validation_fraction"),
    "dataset.scale": ("unit_norm", FEATURES, "features.map: pixels, not to scattering"),
    "partition.labels_per_device": (2, IID, "partition.scheme: labels_per_device, not to iid"),
    "partition.alpha": (2.0, {}, "scheme: dirichlet or quantity, not to labels_per_device"),
    "partition.level": ("edge", IID, "dirichlet or quantity or table, not to iid"),
    "partition.table": ([[1.0, 2.0]], {}, "partition.scheme: table, not to labels_per_device"),
    "features.dimension": (60, {}, "needs features.map, which is pixels here"),
    "features.ridge": (0.1, {}, "features.map"),
    "features.weights": ("invariance", {}, "features.map"),
    "features.public": ("shapes", {}, "features.map"),
    "model.hinge": ("crammer_singer", {}, "model.name: svm, not to softmax"),
    "model.channels": ([2, 3, 4], {}, "model.name: cnn12, not to softmax"),
    "model.depth": (38, {}, "model.name: resnet"),
    "model.width": (8, {}, "model.name: resnet"),
    "model.norm": ("group", {}, "model.name: resnet"),
    "model.stem_stride": (2, {}, "model.name: resnet"),
    "zones.device_noise": (0.2, {}, "algorithm: hdp_mixed, not to m2fdp"),
    "zones.device_noise_of": ("devices", {}, "algorithm: hdp_mixed"),
    "zones.server_noise": (0.2, {}, "algorithm: hdp_mixed"),
    "zones.cloud_noise": (True, {}, "algorithm: hdp_mixed"),
    "zones.both_layers": (True, {}, "algorithm: hdp_mixed"),
    "topology.super_nodes.tolerance": ("crash", {}, "kind: elected, not to fixed"),
    "secure_aggregation.decode": ("cloud", {}, "needs secure_aggregation.layers, which is []"),
    "secure_aggregation.protocol": ("masks", {}, "secure_aggregation.layers"),
    "secure_aggregation.noise": ("shared", {}, "secure_aggregation.layers"),
    "secure_aggregation.threshold": (7, {}, "secure_aggregation.layers"),
    "secure_aggregation.dropout": (0.5, {}, "secure_aggregation.layers"),
    "secure_aggregation.on_loss": ("stop", {}, "secure_aggregation.layers"),
    "training.estimator": ("fixed", {}, "privacy.unit: device, not to record"),
    "training.example_cap": (20, {}, "training.estimator: fixed or clipped, not to mean"),
    "training.least_weight": (2.0, {}, "training.estimator: clipped, not to mean"),
    "training.local_epochs": (2, {}, "algorithms that train in tiers, not to m2fdp"),
    "training.optimizer": ("sgd", {}, "algorithms that train in tiers"),
    "training.weight_decay": (0.1, {}, "algorithms that train in tiers"),
    "training.plateau.factor": (0.9, {}, "algorithms that train in tiers"),
    "training.plateau.patience": (3, {}, "algorithms that train in tiers"),
    "training.plateau.threshold": (0.1, {}, "algorithms that train in tiers"),
    "privacy.noise_multiplier": (1.0, {}, "privacy.calibration: multiplier, not to accountant"),
    "privacy.alpha": (2.0, {}, "J's noise"),
    "privacy.epsilon_cloud": (2.0, {}, "privacy.mechanism: weights, not to gradient"),
    "privacy.exposures.uplinks": (1, {}, "privacy.mechanism: weights"),
    "privacy.exposures.downlinks": (1, {}, "privacy.mechanism: weights"),
    "privacy.exposures.cloud_rounds": (1, {}, "privacy.mechanism: weights"),
    "privacy.exposures.edge_uplinks": (1, {}, "privacy.mechanism: weights"),
    "privacy.exposures.cloud_downlinks": (1, {}, "privacy.mechanism: weights"),
    "privacy.downlink": (
        "full",
        {"privacy.mechanism": "weights"},
        "privacy.calibration: paper, not to accountant",
    ),
    "privacy.clip": ("per_layer", {}, "privacy.unit: device, not to record"),
    "privacy.client_share": (0.2, {}, "algorithm: m2fdp_tiers, not to m2fdp"),
    "privacy.activation_clip": (2.0, {}, "algorithm: m2fdp_tiers"),
    "privacy.activation_share": (0.2, {}, "algorithm: m2fdp_tiers"),
    "privacy.labels": ("randomised", {}, "algorithm: m2fdp_tiers"),
    "privacy.label_epsilon": (
        0.5,
        {"algorithm": "m2fdp_tiers"},
        "privacy.labels: randomised, not to public",
    ),
    "control.alpha_1": (2.0, {}, "needs control.enabled, which is false"),
    "control.alpha_2": (2.0, {}, "control.enabled"),
    "control.alpha_3": (2.0, {}, "control.enabled"),
    "control.gap": ("papers", {}, "control.enabled"),
    "control.tau": (9, {}, "control.enabled"),
    "control.smoothness": (1.0, {}, "control.enabled"),
    "control.dissimilarity": (0.1, PAPERS, "control.gap: mechanism, not to papers"),
    "control.max_local_steps": (9, {}, "control.enabled"),
    "control.step_size_factor": (
        2.0,
        {"control.enabled": True},
        "control.gap: papers, not to mechanism",
    ),
    "control.initial_local_steps": (2, {}, "control.enabled"),
    "tiering.tiers": (6, {}, "algorithms that put devices in tiers"),
    "tiering.whole_model": (True, {}, "algorithms that put devices in tiers"),
    "tiering.schedule": ("oracle", {}, "algorithms that put devices in tiers"),
    "tiering.profile": ("paper", {}, "algorithms that put devices in tiers"),
    "tiering.ema": (0.5, {}, "algorithms that put devices in tiers"),
    "tiering.remember": (True, {}, "algorithms that put devices in tiers"),
    "tiering.initial_tier": (2, {}, "algorithms that put devices in tiers"),
    "tiering.offload_to": ("anyone", {}, "algorithm: m2fdp_tiers"),
    "tiering.aggregate": (
        "uniform",
        {"algorithm": "fedgkt"},
        "algorithms in tiers that average models, not to fedgkt",
    ),
    "tiering.server_epochs": (2, {"algorithm": "dtfl"}, "algorithm: fedgkt, not to dtfl"),
    "training.server.momentum": (0.9, {}, "training.server.rule: momentum, not to average"),
    "training.server.learning_rate": (0.1, {}, "training.server.rule: yogi, not to average"),
    "training.server.beta_1": (0.5, {}, "training.server.rule: yogi"),
    "training.server.beta_2": (0.5, {}, "training.server.rule: yogi"),
    "training.server.tau": (0.1, {}, "training.server.rule: yogi"),
    "deployment.on_missing": ("stop", {}, "the command m2fdp plan, of which this run has none"),
    "deployment.patience_s": (5.0, {}, "the command m2fdp plan"),
    "deployment.keepalive_s": (5.0, {}, "the command m2fdp plan"),
    "deployment.chunk_bytes": (2048, {}, "the command m2fdp plan"),
    "deployment.rehearsal": (True, {}, "the command m2fdp plan"),
    "execution.workers": (2, {}, "execution.engine: ray, not to local"),
    "execution.address": ("auto", {}, "execution.engine: ray, not to local"),
    "clock.model": ("resnet110", {}, "algorithms that train in tiers or split models"),
    "clock.width": (8, {}, "algorithms that train in tiers"),
    "clock.clients": (
        20,
        {"algorithm": "dtfl"},
        "the pipeline clock, of which this run has none",
    ),
    "clock.records": (60_000, {"algorithm": "dtfl"}, "the pipeline clock"),
    "clock.rounds": (100, {"algorithm": "dtfl"}, "the pipeline clock"),
    "clock.cpu_gflops": (1.0, {}, "algorithms that train in tiers"),
    "clock.server_gflops": (1.0, {}, "algorithms that train in tiers"),
    "clock.server": ("shared", {}, "algorithms that train in tiers"),
    "clock.scaling": ("linear", {}, "algorithms that train in tiers"),
    "clock.rate_unit": ("megabit", {}, "algorithms that train in tiers"),
    "clock.noise": (0.1, {}, "algorithms that train in tiers"),
    "clock.profiles": ([[1.0, 30.0]], {}, "algorithms that train in tiers"),
    "clock.switch_every": (9, {}, "algorithms that train in tiers"),
    "clock.switch_share": (0.1, {}, "algorithms that train in tiers"),
    "clock.label_bytes": (4.0, {}, "algorithms that train in tiers"),
    "leakage.distance_correlation": (
        0.5,
        {"algorithm": "fedavg"},
        "algorithms whose clients have losses of their own (dtfl), not to fedavg",
    ),
    "leakage.patch_shuffling": (True, {}, "losses of their own (dtfl), not to m2fdp"),
    "audit.neighbours": (20, {}, "audit.method: neighbours, not to canaries"),
    "audit.repetitions": (20, {"audit.method": "neighbours"}, "canaries, not to neighbours"),
    "audit.confidence": (0.9, {"audit.method": "neighbours"}, "canaries, not to neighbours"),
    "attack.round": (2, {"attack.method": "lira"}, "attack.method: analytic or dlg"),
    "attack.messages": (2, {"attack.method": "lira"}, "not to lira"),
    "attack.images": (2, {"attack.method": "analytic"}, "not to analytic"),
    "attack.restarts": (1, {"attack.method": "lira"}, "not to lira"),
    "attack.iterations": (50, {"attack.method": "lira"}, "not to lira"),
    "attack.total_variation": (0.1, {"attack.method": "dlg"}, "inverting, not to dlg"),
    "attack.targets": (20, {}, "attack.method: lira, not to inverting"),
    "attack.shadows": (16, {}, "attack.method: lira"),
    "attack.confidence": (0.9, {}, "attack.method: lira"),
}


@pytest.mark.parametrize("key", IDLE)
def test_what_nothing_reads_is_refused_with_who_would(key):
    value, others, words = IDLE[key]
    with pytest.raises(InputError) as caught:
        check_config(load_config(others, {key: value}), frozenset())
    line = str(caught.value)
    assert line.startswith(f"{key} = {value!r}: ")
    assert words in line and "; leave it at " in line and "\n" not in line


def test_every_key_that_only_some_runs_read_is_here():
    marked = {key.name for key in readers.keys_of(Config(), Config()) if key.readers}
    assert marked == IDLE.keys()


def test_readers_are_keys_with_values_or_known_names():
    every = {reader for key in readers.keys_of(Config(), Config()) for reader in key.readers}
    assert READERS.keys() < every
    for reader in every - READERS.keys():
        name, _, values = reader.partition(": ")
        for value in filter(None, values.split(" or ")):
            needed = {"partition.table": [[1.0]]} if value == "table" else {}
            load_config({name: value, "privacy.noise_multiplier": 1, **needed})
        assert Request(Config(), build_plan(Config())).value(name) is not None


def test_names_of_readers_name_the_algorithms_that_are():
    for reader, has in (
        (readers.ZONED, lambda algorithm: getattr(algorithm, "zoned", False)),
        (readers.FEDGKT, lambda algorithm: not getattr(algorithm, "tiers", FEDAVG).averaged),
    ):
        able = [name for name, algorithm in ALGORITHMS.items() if has(algorithm)]
        assert reader == f"algorithm: {' or '.join(able)}"


@pytest.mark.parametrize(
    ("given", "pipelines"),
    [
        ({"clock.clients": 20, "tiering.tiers": 6, "clock.noise": 0.0}, {"clock"}),
        ({"privacy.alpha": 2.0}, {"bound"}),
        ({"deployment.rehearsal": True}, {"deployment"}),
        ({**PAPERS, "privacy.alpha": 2.0}, set()),
        ({"privacy": {"mechanism": "upload", "calibration": "paper", "alpha": 2.0}}, set()),
    ],
)
def test_what_something_reads_is_not_idle(given, pipelines):
    check_config(load_config(given), frozenset(pipelines))


def test_what_an_experiment_may_be_asked_for_later_is_read():
    experiment = Experiment.from_config(load_config({"privacy.alpha": 2.0}), digits())
    assert not list(idle_keys(Request(experiment.config, experiment.plan)))


def test_a_mechanism_of_ones_own_may_read_its_whole_block(project):
    (project / "own_noise.py").write_text(
        "from m2fdp.core.privacy.mechanisms.gradient import Gradient\nNOISE = Gradient()\n"
    )
    given = {"privacy.mechanism": "own_noise:NOISE", "privacy.exposures.uplinks": 1}
    check_config(load_config(given))
    assert isinstance(MECHANISMS["gradient"], Gradient)
