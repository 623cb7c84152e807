"""Audited runs, and copies of a changed build."""

from dataclasses import replace
from types import SimpleNamespace

from m2fdp.adversaries.audit import audit, audit_line, audited_lines
from m2fdp.adversaries.canaries import AuditedRun, plant
from m2fdp.adversaries.evidence import no_evidence, weigh
from m2fdp.core.engine.tree_process import build_process


def changed(canaries, **changes):
    """The copies of another simulation."""
    simulation = replace(canaries.process.simulation, **changes)
    process = build_process(simulation, canaries.process.settings)
    return replace(canaries, process=process)


def with_noise(canaries, **parts):
    """The copies with other noise."""
    (mechanism,) = canaries.process.simulation.mechanisms
    other = replace(mechanism, noise=replace(mechanism.noise, **parts))
    return changed(canaries, mechanisms=(other,))


def noise_of(canaries):
    """What the copies add."""
    return canaries.process.simulation.mechanisms[0].noise


def silent(canaries):
    """Without noise, so that only the canary's own effect is left."""
    noise = noise_of(canaries)
    return with_noise(
        canaries,
        steps=noise.steps * 0,
        messages=tuple(scale * 0 for scale in noise.messages),
        broadcasts=tuple(scale * 0 for scale in noise.broadcasts),
    )


def audit_config(repetitions, confidence):
    """An audit of so many copies, at a confidence of its own."""
    return SimpleNamespace(repetitions=repetitions, confidence=confidence)


class System(AuditedRun):
    """A run, ready to be audited."""

    def plant(self, copies, seed=1, which=0):
        line = audited_lines(self.mechanism.ledger, self.schedule.rounds)[which]
        return plant(self, line.position, copies, seed), line

    def audit(self, repetitions, confidence=0.95, seed=1):
        config = audit_config(repetitions, confidence)
        return audit(self, self.schedule.rounds, config, seed)


def bounds_of(system, canaries, line, confidence=0.95):
    """Epsilon of one line from below, by the copies, and from above."""
    config = audit_config(len(canaries.present) // 2, confidence)
    found = audit_line(system, [canaries], line, system.schedule.rounds, config)
    return found.epsilon_lower, found.epsilon_upper


def assert_caught(system, canaries, line, broken):
    """The bound of a sound build stays below the ledger, that of a broken one does not."""
    lower, upper = bounds_of(system, canaries, line)
    assert lower <= upper
    lower, upper = bounds_of(system, broken, line)
    assert lower > upper


def epsilon_shown(absent, present, delta, confidence):
    """Epsilon from below by all scores, in an order that says nothing of them."""
    return weigh(no_evidence(len(absent), delta, 1 - confidence), absent, present).bound


def shown_by(absent, present, delta, confidence=0.95):
    """Epsilon from below by numbers of two worlds: the first fifth of either says where Gaussians
    lie, and the rest is bet on."""
    known = len(absent) // 5
    zero, one, spread = absent[:known].mean(), present[:known].mean(), absent[:known].std()
    slope, middle = (one - zero) / spread**2, (zero + one) / 2
    scores = (slope * (world[known:] - middle) for world in (absent, present))
    return epsilon_shown(*scores, delta, confidence)
