"""The audit against the ledger: never above it, and above it when the build is broken.

All seeds are fixed, so each of these tests either fails always or never; the rates in the
comments say how likely a correct build was to fail when the seeds were chosen.
"""

from dataclasses import dataclass, replace
from importlib import import_module
from math import inf

import numpy as np
import pytest
from tests.adversaries.copies import assert_caught, bounds_of, changed, noise_of, silent, with_noise

from m2fdp.adversaries.audit import audit, listen
from m2fdp.adversaries.canaries import plant
from m2fdp.adversaries.config import AuditConfig
from m2fdp.core.config import ThreatConfig
from m2fdp.core.privacy.calibration import no_privacy

UPLOAD = {"mechanism": "upload"}
UNTRUSTED = ("server-1-0", "server-1-1")
STAR = {"fanouts": (4,), "untrusted": ()}
DEEP = {"fanouts": (2, 2, 2), "untrusted": ("server-1-1", "server-2-3"), "steps": 4}
FAST = {
    "gradient": {},
    "upload": UPLOAD | {"rate": 1.0, "local_aggregation": {1: 2}},
    "device": UPLOAD | {"unit": "device", "local_aggregation": {1: 2}},
}
MANY = {
    "gradient, q = 1": {"rate": 1.0},
    "gradient, small q": {"rate": 0.05},
    "gradient, local aggregation": {"local_aggregation": {1: 2}},
    "gradient, replace one": {"adjacency": "replace_one"},
    "gradient, zero out": {"adjacency": "zero_out", "step_size": "inverse_sqrt"},
    "gradient, device": {"unit": "device"},
    "gradient, star": STAR,
    "gradient, deep": DEEP,
    "gradient, large epsilon": {"epsilon": 20.0},
    "upload, q = 1": UPLOAD | {"rate": 1.0},
    "upload, small q": UPLOAD | {"rate": 0.05},
    "upload, local aggregation": UPLOAD | {"local_aggregation": {1: 2}},
    "upload, decaying steps": UPLOAD | {"local_aggregation": {1: 2}, "step_size": "inverse_sqrt"},
    "upload, star": UPLOAD | STAR,
    "upload, deep": UPLOAD | DEEP | {"local_aggregation": {2: 1, 1: 2}},
    "upload, large epsilon": UPLOAD | {"epsilon": 20.0, "local_aggregation": {1: 2}},
    "upload, large delta": UPLOAD | {"delta": 0.1, "epsilon": 0.5, "rate": 1.0},
    "upload, device": UPLOAD | {"unit": "device", "local_aggregation": {1: 2}},
    "upload, paper": UPLOAD | {"calibration": "paper", "local_aggregation": {1: 2}},
    "upload, paper, deep": UPLOAD | DEEP | {"calibration": "paper", "local_aggregation": {2: 2}},
    "gradient, weights": {"weights": "samples", "size": [60, 100, 140] * 2},
    "upload, weights": UPLOAD | {"weights": "samples", "size": [60, 100, 140] * 2},
    "upload, noise below heads": UPLOAD | {"noise_below_heads": 0.25},
    "upload, paper, little noise": UPLOAD | {"calibration": "paper", "alpha": 0.1},
}


@pytest.mark.parametrize("name", FAST)
def test_the_lower_bound_stays_below_the_ledger(make_system, name):
    # Two observers each: a false alarm in all three with probability at most 0.01.
    for found in make_system(**FAST[name]).audit(400, confidence=1 - 0.01 / 6):
        assert 0 <= found.epsilon_lower <= found.epsilon_upper
        assert found.epsilon_lower <= found.largest_lower


@pytest.mark.full
def test_the_lower_bounds_stay_below_the_ledger_in_all_mechanisms(make_system):
    # At most three observers each: simultaneous 95 %.
    confidence = 1 - 0.05 / (3 * len(MANY))
    assert len(MANY) >= 20
    shown = 0
    for name, system in MANY.items():
        for found in make_system(**system).audit(1000, confidence=confidence):
            assert found.epsilon_lower <= found.epsilon_upper, name
            shown += found.epsilon_lower > 0.2
    # The bounds say something.
    assert shown >= 10


def test_a_gaussian_is_audited_close_to_its_worth(make_system):
    # One release at q = 1 with delta = 0.1: epsilon = 1 there needs TPR = e FPR + 0.1.
    system = make_system(**STAR, rounds=1, steps=1, rate=1.0, delta=0.1, epsilon=1.0)
    (found,) = system.audit(8000)
    assert found.epsilon_upper == pytest.approx(1.0, rel=2e-3)
    assert 0.6 < found.epsilon_lower <= 1.0


def drawing(canaries, **streams):
    """The copies with other streams."""
    return changed(canaries, randomness=replace(canaries.process.simulation.randomness, **streams))


@dataclass(frozen=True)
class Shuffled:
    """Streams of uniforms that put every record into exactly one of the steps."""

    steps: int

    def generator(self, purpose, round_, step):
        assert purpose == "minibatch"
        return self.Uniforms(self.steps, round_, step)

    @dataclass(frozen=True)
    class Uniforms:
        steps: int
        round: int
        step: int

        @property
        def bit_generator(self):
            return np.random.Philox(0)  # whoever skips numbers of it skips none of `random`

        def random(self, size):
            places = np.floor(np.random.default_rng(self.round).random(size) * self.steps)
            return np.where(places == self.step - 1, 0.0, 1.0)


@pytest.mark.full
@pytest.mark.parametrize("mechanism", ["gradient", "upload"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_quarter_of_the_noise_is_caught(make_system, mechanism, which):
    system = make_system(mechanism=mechanism, rate=1.0)
    canaries, line = system.plant(600, which=which)
    noise = noise_of(canaries)
    messages = tuple(scale / 4 for scale in noise.messages)
    broken = with_noise(canaries, steps=noise.steps / 4, messages=messages)
    assert_caught(system, canaries, line, broken)


@pytest.mark.full
def test_noise_that_is_missing_in_one_inner_layer_is_caught_there(make_system):
    """Heads at layers 1, 2 and 3; those of layer 2 forget their noise, which the audits of the
    other two heads see nothing of."""
    system = make_system(**UPLOAD, **DEEP, rate=1.0)
    broken = {}
    for which in range(3):
        canaries, line = system.plant(600, which=which)
        messages = list(noise_of(canaries).messages)
        messages[2] = messages[2] * 0
        lower, upper = bounds_of(system, with_noise(canaries, messages=tuple(messages)), line)
        broken[line.position.head_layer] = lower > upper
    assert broken == {1: False, 2: True, 3: False}


@pytest.mark.full
def test_noise_that_is_missing_below_a_head_is_caught(make_system):
    """The ledger counts on what devices add below the trusted server, who adds a fourth."""
    system = make_system(**UPLOAD, rate=1.0, untrusted=(), noise_below_heads=0.25)
    canaries, line = system.plant(600)
    *upper, of_devices = noise_of(canaries).messages
    assert of_devices.all()
    broken = with_noise(canaries, messages=(*upper, of_devices * 0))
    assert_caught(system, canaries, line, broken)


@pytest.mark.full
def test_synchronisation_without_noise_is_caught(make_system):
    system = make_system(**UPLOAD, local_aggregation={1: 2}, rate=0.9, untrusted=UNTRUSTED)
    canaries, line = system.plant(400)
    quiet = tuple(of_layer * 0 for of_layer in noise_of(canaries).messages)
    broken = with_noise(canaries, local_messages=quiet)
    # Two releases a round, at the local and at the global aggregation; half of the copies have
    # no canary, and only noise parts their models.
    spreads = [
        listen(copies, 3)[..., ~copies.present].std(axis=(0, 2)) for copies in (canaries, broken)
    ]
    (local, global_), (local_left, global_left) = spreads
    assert local > 0.5 * global_ > 0
    assert local_left < 1e-9 * local
    assert global_left == pytest.approx(global_, rel=0.05)
    assert_caught(system, canaries, line, broken)


def test_an_audit_stops_once_it_refutes_the_ledger(make_system):
    system = make_system(**UPLOAD, rate=1.0)
    noise = system.mechanism.noise
    quiet = replace(noise, messages=tuple(scale / 8 for scale in noise.messages))
    broken = replace(system, mechanism=replace(system.mechanism, noise=quiet))
    for found in audit(broken, 3, AuditConfig(repetitions=5000), 1):
        assert found.epsilon_lower > found.epsilon_upper
        assert found.repetitions <= 100
    assert [found.repetitions for found in system.audit(120)] == [120, 120]


def test_records_that_leave_no_number_are_caught(make_system, monkeypatch):
    module = import_module("m2fdp.adversaries.audit")

    def broken(canaries, *options):
        return np.where(canaries.present, np.nan, listen(canaries, *options))

    monkeypatch.setattr(module, "listen", broken)
    for found in make_system(**UPLOAD).audit(100):
        assert found.epsilon_lower > found.epsilon_upper


def test_later_copies_have_draws_of_their_own(make_system):
    """Else they would say again what the first have said: noise and minibatches."""
    system = make_system(steps=1, rate=0.5)
    canaries, line = system.plant(100)
    later = plant(system, line.position, 100, 1, earlier=100)
    seen = [listen(copies, 3) for copies in (canaries, later)]
    assert not np.isin(*seen).any()
    drawn = [listen(silent(copies), 3) > 1e-9 for copies in (canaries, later)]
    # Half of 150 draws differ; six standard deviations are 37.
    assert 38 < (drawn[0] != drawn[1]).sum() < 112


@pytest.mark.full
def test_shuffled_minibatches_are_caught(make_system):
    # One window of ten steps at q = 0.1 and little noise. A Poisson sample misses the record
    # with probability 0.9^10 = 0.35, and delta = 0.7 pays for all else: epsilon is 0. An epoch
    # of shuffled minibatches never misses it.
    system = make_system(
        **UPLOAD, **STAR, calibration="paper", epsilon=10.0, delta=0.7, rounds=1, steps=10, rate=0.1
    )
    canaries, line = system.plant(200)
    lower, upper = bounds_of(system, canaries, line)
    assert lower == 0
    assert upper < 0.1
    lower, upper = bounds_of(system, drawing(canaries, sampling=Shuffled(10)), line)
    assert lower > upper


@pytest.mark.full
def test_the_papers_noise_is_not_worth_its_nominal_epsilon(make_system):
    # J's setting below a trusted server with un-noised local aggregation (DESIGN, section 6).
    system = make_system(
        **UPLOAD,
        fanouts=(1, 5),
        untrusted=(),
        calibration="paper",
        epsilon=1.0,
        clipping_norm=1.0,
        rounds=200,
        steps=20,
        local_aggregation={1: 5},
        size=1200,
        rate=32 / 1200,
    )
    (found,) = system.audit(250)
    assert found.epsilon_nominal == 1
    # 2.9 with the noise of one key.
    assert 2 <= found.epsilon_lower <= found.epsilon_upper
    assert found.epsilon_upper == pytest.approx(13.4, rel=0.02)


def test_of_every_head_one_observer_is_audited(make_system):
    found = make_system(rate=1.0).audit(50)
    assert [(each.releases, each.epsilon_upper < inf) for each in found] == [(3, True)] * 2
    assert all("below" in each.position for each in found)


def test_nothing_private_has_nothing_to_audit(make_system):
    system = make_system(rate=1.0)
    plans = system.schedule.round_plans()
    mechanism = no_privacy(system.network, plans, system.privacy, ThreatConfig())
    with pytest.raises(ValueError, match="no bound to audit"):
        audit(replace(system, mechanism=mechanism), 3, AuditConfig(), 0)
