"""The audit of runs with a proximal term: canaries attain the law of `m2fdp.privacy.taint`, stay
below the ledger, and show a ledger that takes a tainted centre for a public one."""

from dataclasses import replace

import numpy as np
import pytest

from m2fdp.adversaries import AuditedRun, listen, plant
from m2fdp.adversaries.audit import audit_line, audited_lines
from m2fdp.config import AuditConfig, PrivacyConfig, ThreatConfig
from m2fdp.privacy.calibration import build_mechanism
from m2fdp.privacy.premises import Premises
from m2fdp.privacy.taint import windows
from m2fdp.schedule.schedule import Schedule
from m2fdp.topology.builders import tree_from_fanouts
from m2fdp.topology.network import Network, noise_plan
from m2fdp.topology.trust import explicit_trust

ETA = 0.1
CENTERS = ["received", "global"]


def run_of(part, center, rounds=1, steps=8, every=2, rate=1.0, untrusted=(), **privacy):
    """Two edge servers with five devices each; `part` is eta mu."""
    tree = tree_from_fanouts([2, 5])
    trust = explicit_trust(tree, list(untrusted))
    network = Network(tree, trust, noise_plan(tree, trust))
    schedule = Schedule(rounds, steps, {1: every}, ETA, "constant", part / ETA, center)
    config = PrivacyConfig(
        **{"mechanism": "upload", "epsilon": 1.0, "delta": 1e-5, "clipping_norm": 0.5} | privacy
    )
    sizes, rates = np.full(10, 100), np.full(10, rate)
    mechanism = build_mechanism(
        Premises(network, sizes, rates, schedule.round_plans(), config, ThreatConfig())
    )
    return AuditedRun(network, mechanism, schedule, config, sizes)


def planted(run, copies, which=0):
    line = audited_lines(run.mechanism.ledger, run.schedule.rounds)[which]
    return plant(run, line.position, copies, seed=3), line


def silent(canaries):
    """The same copies without noise."""
    process = canaries.process
    (mechanism,) = process.simulation.mechanisms
    noise = mechanism.noise
    quiet = replace(noise, messages=tuple(np.zeros_like(scale) for scale in noise.messages))
    simulation = replace(process.simulation, mechanisms=(replace(mechanism, noise=quiet),))
    return replace(canaries, process=replace(process, simulation=simulation))


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("untrusted", [(), ("server-1-0", "server-1-1")], ids=["branch", "parent"])
def test_canaries_move_their_release_by_the_law_s_largest_shift(part, center, untrusted):
    """Whole shards and no noise: every copy with a canary is away from every one without by it."""
    run = run_of(part, center, untrusted=untrusted)
    canaries, line = planted(run, 8)
    seen = listen(silent(canaries), 1, downlink_noise=False)
    head = line.position.head_layer
    for release, window in zip(seen[0], windows(canaries.plan, head, False), strict=True):
        alone = replace(canaries.plan, layers=(*window.syncs[:-1], 0))
        ((law, _),) = line.laws(line.position, alone)
        moved = release[canaries.present].mean() - release[~canaries.present].mean()
        assert np.ptp(release[~canaries.present]) == pytest.approx(0.0, abs=1e-9)
        # A hundredth of a canary's push, and of those that renew its mark, goes into the mark.
        assert abs(moved) == pytest.approx(law.largest * line.position.unit, rel=2e-4)


@pytest.mark.parametrize("center", CENTERS)
@pytest.mark.parametrize(
    "changes",
    [
        {"part": 0.3},
        {"part": 0.3, "rate": 0.3, "rounds": 3, "untrusted": ("server-1-1",)},
        {"part": 0.5, "mechanism": "gradient", "rate": 0.5, "rounds": 2},
        {"part": 0.5, "drift": "smooth", "smoothness": 0.5},
    ],
    ids=["upload", "small q", "gradient", "smooth"],
)
def test_the_lower_bound_stays_below_the_ledger(changes, center):
    # At most two observers in eight cases: a false alarm in any with probability at most 0.01.
    run = run_of(**changes, center=center)
    for line in audited_lines(run.mechanism.ledger, run.schedule.rounds):
        canaries = plant(run, line.position, 800, seed=3)
        config = AuditConfig(repetitions=400, confidence=1 - 0.01 / 16)
        found = audit_line(canaries, line, run.privacy, run.schedule.rounds, config)
        assert 0 <= found.epsilon_lower <= found.epsilon_upper <= 1.0


def test_a_centre_that_is_tainted_and_counted_as_public_is_caught():
    """Noise and ledger of a pull to the round's first model, but devices are pulled to what they
    last received from the trusted server, in clear. The whole difference is 2.7 times as large."""
    honest = run_of(0.5, "global", steps=16)
    (line,) = audited_lines(honest.mechanism.ledger, 1)
    broken = replace(honest, schedule=replace(honest.schedule, center="received"))
    received = run_of(0.5, "received", steps=16)
    (true_line,) = audited_lines(received.mechanism.ledger, 1)
    claimed, real = (
        one.laws(one.position, run.schedule.round_plans()[0])[0][0].largest
        for one, run in ((line, honest), (true_line, received))
    )
    assert real > 2.5 * claimed
    config = AuditConfig(repetitions=1500, confidence=0.99)
    found = {}
    for name, run in (("honest", honest), ("broken", broken), ("received", received)):
        own = true_line if name == "received" else line
        canaries = plant(run, own.position, 3000, seed=3)
        found[name] = audit_line(canaries, own, run.privacy, 1, config)
    assert found["honest"].epsilon_lower <= found["honest"].epsilon_upper
    assert found["received"].epsilon_lower <= found["received"].epsilon_upper
    assert found["broken"].epsilon_lower > found["broken"].epsilon_upper
