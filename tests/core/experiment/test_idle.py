"""Keys that nothing in a run reads: one refusal for all, and every key with readers is here."""

from typing import get_args

import pytest
from tests.builders import digits

from m2fdp import Experiment, load_config
from m2fdp.core.algorithms import ALGORITHMS, build_plan
from m2fdp.core.config import Config, keys_of
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.experiment.request import Request, idle_keys, in_words, named_readers
from m2fdp.core.formatting import in_yaml
from m2fdp.core.privacy.mechanisms import MECHANISMS
from m2fdp.core.privacy.mechanisms.gradient import Gradient
from m2fdp.zones.config import ZONED

PAPERS = {"control.enabled": True, "control.gap": "papers"}
# Another value than the default, where the next of a list, a flag or another number won't do.
OTHER = {
    "dataset.root": "elsewhere",
    "dataset.shape": [32, 32, 3],
    "partition.table": [[1.0, 2.0]],
    "features.public": "drawings",
    "model.channels": [2, 3, 4],
    "model.depth": 38,
    "clock.model": "resnet110",
    "clock.profiles": [[1.0, 30.0]],
    "attack.shadows": 16,
    "execution.address": "auto",
}
# Of these runs one at least is without what reads a key.
RUNS = (
    {},
    {"partition.scheme": "iid"},
    {"features.map": "scattering"},
    {"audit.method": "neighbours"},
    *({"attack.method": method} for method in ("lira", "analytic", "dlg")),
    {"algorithm": "dtfl"},
    {"algorithm": "m2fdp_tiers"},
    {"control.enabled": True},
    PAPERS,
)
MARKED = {key.name: key for key in keys_of(Config(), Config()) if key.readers}


def other_than_default(name):
    """A value that the key may have."""
    default, block = MARKED[name].default, Config
    *blocks, last = name.split(".")
    for part in blocks:
        block = block.model_fields[part].annotation
    if name in OTHER:
        return OTHER[name]
    if isinstance(default, str):
        return next(
            each for each in get_args(block.model_fields[last].annotation) if each != default
        )
    if default is None or isinstance(default, bool):
        return 2 if default is None else not default
    return default / 2 or 0.25 if isinstance(default, float) else default - 1 or 2


@pytest.mark.parametrize("key", MARKED)
def test_what_nothing_reads_is_refused_with_who_would(key):
    value, lines = other_than_default(key), []
    for others in RUNS:
        try:
            check_config(load_config(others, {key: value}), frozenset())
        except InputError as refused:
            lines += [str(refused)] if refused.key == key else []
    readings = [in_words(each) for each in MARKED[key].readers]
    tail = f", which this run is without; leave it at {in_yaml(MARKED[key].default)}"
    said = {f"belongs to {reader}{tail}" for reader in readings}
    assert said & {line.partition(": ")[2] for line in lines}
    assert all("\n" not in line for line in lines)


def test_readers_are_keys_with_values_or_known_names():
    every = {
        reader
        for key in MARKED.values()
        for each in key.readers
        for reader in each.split(" | ")
        if not reader.startswith("the pipeline ")
    }
    assert named_readers().keys() < every
    for reader in every - named_readers().keys():
        name, _, values = reader.partition(": ")
        for value in filter(None, values.split(" or ")):
            needed = {"partition.table": [[1.0]]} if value == "table" else {}
            load_config({name: value, "privacy.noise_multiplier": 1, **needed})
        assert Request(Config(), build_plan(Config())).value(name) is not None


def test_names_of_readers_name_the_algorithms_that_are():
    able = [name for name, algorithm in ALGORITHMS.items() if getattr(algorithm, "zoned", False)]
    assert f"algorithm: {' or '.join(able)}" == ZONED


@pytest.mark.parametrize(
    ("given", "pipelines"),
    [
        ({"clock.switch_every": 20, "tiering.tiers": 6, "clock.noise": 0.0}, {"clock"}),
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
