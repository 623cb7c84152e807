"""What noise, hashes of cells and saved configurations are keyed by stays what it was."""

import hashlib
import json

import pytest

from m2fdp import load_config
from m2fdp.core.config import Config, essentials, flatten, later_defaults, recorded, released
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_config
from m2fdp.given.retired import RETIRED, less_retired

# Of conf/base at version 0.1.0 (commit 8512413): SHA-256 of the JSON text, keys sorted, as noise
# and hashes of cells have them.
ESSENTIALS = "d836da21211ad57ec9171c866ccd519490fe53535a43cd1a0ab1e8458cd271e6"
RELEASED = "2f826e0684ab65fbcb379be1e9bba70d7713127395a939149671b7b905c25dc1"
# Since 0.7.0 with what the gap is of, whose default is not what was before it.
CONTROLLED = "f11419eeb3f7789d11fcf62f0a87868ef0c5c82226ea87e2c81889c9a8f2782a"
# Of the keys that came later: how many, and the same of their defaults.
N_LATER = 90
LATER_DEFAULTS = "74d51dbb3119c28419bbe54cf6b5a24b9cf8844ef6154da8dfddb89bc28c3424"
# A key that came later, and another value than its default.
LATER = [
    ({"options": {"depth": 2}}, "options.depth"),
    ({"topology": {"weights": "samples"}}, "topology.weights"),
    ({"model": {"loss": "own:loss"}}, "model.loss"),
    ({"topology": {"super_nodes": {"kind": "elected"}}}, "topology.super_nodes.kind"),
    ({"zones": {"device_noise": 0.4}}, "zones.device_noise"),
    ({"secure_aggregation": {"layers": [1]}}, "secure_aggregation.layers"),
    ({"training": {"participation": 0.5}}, "training.participation"),
    ({"privacy": {"clip": "per_layer"}}, "privacy.clip"),
    ({"training": {"proximal": 0.5}}, "training.proximal"),
    ({"threat": {"colluding": 1}}, "threat.colluding"),
    ({"features": {"map": "scattering"}}, "features.map"),
    ({"tiering": {"tiers": 6}}, "tiering.tiers"),
    ({"clock": {"model": "resnet110"}}, "clock.model"),
    ({"dataset": {"scale": "unit_norm"}}, "dataset.scale"),
    ({"privacy": {"exposures": {"uplinks": 0}}}, "privacy.exposures.uplinks"),
    ({"training": {"plateau": {"factor": 0.9}}}, "training.plateau.factor"),
    ({"leakage": {"patch_shuffling": True}}, "leakage.patch_shuffling"),
    ({"training": {"server": {"rule": "momentum"}}}, "training.server.rule"),
    ({"training": {"accumulated_noise": 1.0}}, "training.accumulated_noise"),
    ({"partition": {"held_out_by": "devices"}}, "partition.held_out_by"),
    ({"partition": {"table": [[1.0, 2.0]]}}, "partition.table"),
    ({"dataset": {"records": 600}}, "dataset.records"),
    ({"dataset": {"schema": "patients.yml"}}, "dataset.schema"),
]
# The same, of keys that count under a controller only.
LATER_OF_CONTROL = [
    ({"gap": "papers"}, "control.gap"),
    ({"dissimilarity": 0.1}, "control.dissimilarity"),
]


def digest(values):
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


# Of version 0.19, the first 16 digits of both digests, by what is asked for. Keys that were removed
# since are in them.
UPLOAD, CONTROL = {"privacy.mechanism": "upload"}, {"control.enabled": True}
PAPER = UPLOAD | {"privacy.calibration": "paper", "privacy.alpha": 3.0}
STAR = {"algorithm": "pedpfl", "topology.fanouts": [6], "topology.trust.ratios": []}
IN_TIERS = {"algorithm": "m2fdp_tiers", "model.name": "cnn12", "tiering.offload_to": "anyone"}
WEIGHTS = {"privacy.mechanism": "weights", "privacy.epsilon_cloud": 2.0}
CHANCE = {"training.participation": 0.5, "training.proximal": 0.1, "secure_aggregation.layers": [1]}
OF_0_19 = [
    ({"algorithm": "hfl"}, "d856707802b82ee1 d08b9c2e7264b45f"),
    (STAR, "474bc6ccb2a2cc7b 346cb9d3f06737c7"),
    (UPLOAD, "af3a2e82eddda63a b717d881f16ffc89"),
    (
        UPLOAD | {"privacy.unit": "device", "privacy.clip": "per_layer"},
        "d7e0e8d1df311cef 39453a022ec11c54",
    ),
    (PAPER, "d011a3051394c33d 2de1065fb2fc47c9"),
    (WEIGHTS | {"algorithm": "global_dp"}, "2f298ef59c98fe72 dc6815917fbb376f"),
    (
        {"algorithm": "hdp_mixed", "zones.server_noise": 0.0},
        "05ec893129c1df7d 782b1482627ac2e1",
    ),
    ({"algorithm": "scaffold", "seed": 7}, "bed4916f68ef05d9 691cb60e3230cbb6"),
    (CONTROL, "256279c0a319659b f11419eeb3f7789d"),
    (
        CONTROL | {"control.gap": "papers", "control.smoothness": "estimated"},
        "13890c77a0f9e136 698d3f8c2f027e62",
    ),
    (IN_TIERS, "0f96dd4ba596973a 2f5dd70076ecac25"),
    (CHANCE, "eb0a6245e0ac0a92 fae8e4aa43cc9439"),
]


@pytest.mark.parametrize(("asked", "digits"), OF_0_19)
def test_noise_and_hashes_are_keyed_as_in_0_19(asked, digits):
    config = load_config(asked)
    assert [digest(of(config))[:16] for of in (essentials, released)] == digits.split()


@pytest.mark.parametrize("key", RETIRED)
def test_a_key_that_was_removed_is_refused_with_what_is_there_instead(key):
    nested: object = "x"
    for name in reversed(key.split(".")):
        nested = {name: nested}
    with pytest.raises(InputError, match=rf"^{key} = 'x': was removed in 0\.\d+: ") as caught:
        parse_config(nested)
    assert "\n" not in str(caught.value)


def test_parameters_that_0_19_saved_are_read_where_every_run_is_as_they_say():
    saved = Config().model_dump(mode="json")
    saved["privacy"] |= {"drift": "worst_case", "smoothness": None, "secure_rng": False}
    assert parse_config(less_retired(saved)) == Config() and "drift" in saved["privacy"]
    saved["privacy"]["drift"] = "smooth"
    with pytest.raises(InputError, match="privacy.drift = 'smooth': was removed in 0.20"):
        parse_config(less_retired(saved))


def test_keys_that_came_later_change_nothing_at_their_defaults():
    assert digest(essentials(Config())) == ESSENTIALS
    assert digest(released(Config())) == RELEASED
    assert digest(released(parse_config({"control": {"enabled": True}}))) == CONTROLLED


@pytest.mark.parametrize(("parameters", "key"), LATER)
def test_keys_that_came_later_count_where_they_are_used(parameters, key):
    config = parse_config(parameters)
    assert digest(released(config)) != RELEASED
    assert set(released(config)) - set(released(Config())) == {key}
    assert essentials(config)[key] == flatten(config.model_dump())[key]


@pytest.mark.parametrize(("changes", "key"), LATER_OF_CONTROL)
def test_keys_that_came_later_count_under_a_controller(changes, key):
    controlled = parse_config({"control": {"enabled": True}})
    config = parse_config({"control": {"enabled": True} | changes})
    assert released(config) != released(controlled)
    assert essentials(config)[key] == flatten(config.model_dump())[key]
    assert released(parse_config({"control": changes})) == released(Config())


def test_an_attack_changes_no_release():
    config = parse_config({"attack": {"restarts": 3}})
    assert digest(released(config)) == RELEASED
    assert essentials(config)["attack.restarts"] == 3


def test_where_a_run_is_computed_is_part_of_no_result():
    execution = {"engine": "ray", "workers": 2, "address": "auto"}
    incidental = {"execution": execution, "figures": "pdf"}
    assert digest(essentials(parse_config(incidental))) == ESSENTIALS
    assert digest(released(parse_config(incidental))) == RELEASED


def test_every_later_key_is_tried_here_and_keeps_its_default():
    """A default that changed would change what earlier versions recorded."""
    assert len(later_defaults()) == N_LATER and digest(later_defaults()) == LATER_DEFAULTS
    # What an attack does changes no release: see above; and no run of the simulator reads how nodes
    # of their own behave.
    untried = {"attack", "audit", "control", "deployment", "execution", "figures"}
    assert untried | {key.split(".")[0] for _, key in LATER} == {
        key.split(".")[0] for key in later_defaults()
    }


def test_a_later_block_is_left_out_as_a_whole_and_told_from_its_absence():
    from pydantic import Field

    from m2fdp.core.blocks import SINCE, Block
    from m2fdp.core.config import less_later

    later = {SINCE: "9.9"}

    class Inner(Block):
        size: int = 1
        by_name: dict[str, int] = {"a": 1}

    class Outer(Block):
        old: int = 0
        plain: Inner = Field(default=Inner(), json_schema_extra=later)
        perhaps: Inner | None = Field(default=None, json_schema_extra=later)

    def kept(**values):
        block = Outer(**values)
        return less_later(block.model_dump(), block, Outer())

    assert kept() == {"old": 0}
    assert kept(plain={"size": 2}) == {"old": 0, "plain": {"size": 2}}
    # All of a mapping, or none of it: what is left out of one could be missing in another.
    assert kept(plain={"by_name": {"a": 1, "b": 2}})["plain"] == {"by_name": {"a": 1, "b": 2}}
    assert kept(perhaps={})["perhaps"] == {"size": 1, "by_name": {"a": 1}}


def test_what_is_recorded_tells_configurations_apart():
    every = flatten(Config().model_dump(mode="json"))
    gone = {key: retired.default for key, retired in RETIRED.items() if retired.after is not None}
    kept = {key: value for key, value in every.items() if key not in later_defaults()}
    assert recorded(Config()) == kept | gone
