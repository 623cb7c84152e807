"""The differential test is green on every private run that can be configured, and on no broken
build.

Seeds are fixed: each test fails always or never. Of a build with the right noise a run was to fail
with a probability of 3e-7 a node when they were chosen.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.adversaries.drawn_runs import FAMILIES, drawn_run
from tests.builders import records_of

from m2fdp import Experiment, load_config
from m2fdp.adversaries.neighbours import try_neighbours
from m2fdp.adversaries.run import tried_run
from m2fdp.core.engine import backends, clipping, minibatches, noise, seams, sequential
from m2fdp.core.engine import round as rounds
from m2fdp.core.engine.rules import ProximalStep, Rules
from m2fdp.core.privacy.mechanisms import Clipping

BASE = {
    "topology.fanouts": [2, 2],
    "topology.trust.ratios": [0.5],
    "training.rounds": 2,
    "training.local_steps": 2,
    "training.local_aggregation": None,
    "training.batch_size": 4.0,
    "training.learning_rate": 0.1,
    "privacy.delta": 1e-4,
    "privacy.clipping_norm": 0.3,
    "privacy.epsilon": 1.0,
    "audit.method": "neighbours",
}
UPLOAD = {"privacy.mechanism": "upload"}
SIZES = [8, 8, 8, 8]


def run_of(changes=None, sizes=SIZES, loss=None):
    """A small run, ready to be tried."""
    experiment = Experiment.from_config(load_config(BASE, changes or {}), *records_of(sizes))
    run = tried_run(experiment)
    if loss is not None:
        model = replace(run.simulation.model, loss=loss, loss_gradient=None)
        run = replace(run, simulation=replace(run.simulation, model=model))
    return run


def broken(run, count=16):
    """What is found of lines that do not hold."""
    return {row.finding for row in try_neighbours(run, count, seed=1) if not row.held}


def changed(run, **changes):
    """The run of another simulation, of which the ledger knows nothing."""
    return replace(run, simulation=replace(run.simulation, **changes))


def clipped(**norms):
    """A build whose nodes clip otherwise."""

    def change(patch, run):
        (mechanism,) = run.simulation.mechanisms
        return changed(run, mechanisms=(replace(mechanism, clipping=Clipping(**norms)),))

    return change


@pytest.mark.parametrize("number", range(len(FAMILIES)))
def test_every_line_holds_in_runs_of_all_algorithms_and_mechanisms(number):
    experiment = drawn_run(number)
    rows = try_neighbours(tried_run(experiment), 4, seed=number)
    assert rows
    assert all(row.held and row.found > 0 for row in rows), rows


@pytest.mark.full
@pytest.mark.parametrize("number", range(len(FAMILIES), 300))
def test_every_line_holds_in_many_more_runs(number):
    rows = try_neighbours(tried_run(drawn_run(number)), 12, seed=number)
    assert all(row.held for row in rows), rows


def no_noise(patch, run):
    patch.setattr(noise.RoundNoise, "add", lambda *given: None)
    return run


def less_noise(patch, run):
    whole = noise.add_noise

    def add(models, rows, deviations, *rest):
        whole(models, rows, 0.8 * deviations, *rest)

    patch.setattr(noise, "add_noise", add)
    return run


def deaf(patch, run):
    """A process that draws no noise, as one that was put in the place of another."""

    class Deaf:
        def __init__(self, process):
            self.process, self.executor = process, process.executor
            self.simulation, self.start = process.simulation, process.start

        def round(self, state, plan, tap=None):
            return self.process.round(state, plan)

    return replace(run, build=lambda simulation: Deaf(run.build(simulation)))


def reading_before_noise(patch, run):
    class Longer:
        anchored = False

        def step(self, models, anchors, eta, descend):
            before = models.clone()
            descend(models)
            models.copy_(before + 20 * (models - before))

    patch.setattr(seams, "adds_up", lambda local: True)
    return changed(run, rules=Rules(local=Longer()))


def rounded_away(patch, run):
    """A model so long that noise is rounded away, with a number that compares with none."""

    class Far:
        anchored = False

        def step(self, models, anchors, eta, descend):
            far = torch.full_like(models, 2.0**24)
            far[:, -1] = torch.nan
            descend(far)
            models.add_(torch.nan_to_num(far - 2.0**24))

    return changed(run, rules=Rules(local=Far()))


def pulled(patch, run):
    """What an own rule pulls by, which the ledger knows nothing of."""
    return changed(run, rules=Rules(local=ProximalStep(-10.0)))


def shortened(patch, run):
    """Shorter steps, that a proximal term pulls less in than the ledger credits."""
    plans = [replace(plan, step_size=plan.step_size / 100) for plan in run.plans]
    return replace(run, plans=plans)


def started_in_clear(patch, run):
    """Devices that go on, within a round, from a global model without noise."""
    return replace(run, plans=[replace(plan, layers=(0, 0)) for plan in run.plans])


def scaled_by_the_brightest(patch, run):
    """All records over the brightest of them, whoever's it is."""
    return replace(run, worlds=brightened)


def brightened(shards, neighbour, stream):
    bright = shards.features.clone()
    bright[torch.as_tensor(neighbour.places)] *= 3
    without = torch.ones(len(bright), dtype=torch.bool)
    without[torch.as_tensor(neighbour.places)] = False
    one = replace(shards, features=bright / bright[without].max(), absent=neighbour.places)
    return one, replace(shards, features=bright / bright.max())


def divided_by_drawn(patch, run):
    """A mean over the number of records that were drawn, which nobody noised."""
    patch.setattr(
        minibatches,
        "_device_weights",
        lambda mechanism, shards, drawn: mechanism.lock_step.weights / np.maximum(drawn, 1),
    )
    return run


def clipped_to_the_longest(patch, run):
    """Gradients over the longest of a batch, in the place of a public norm."""

    def factors(norms, norm, factor):
        longest = norms.masked_fill(norms > 1e3, 0.0).max().clamp_min(1e-9)
        return torch.full_like(norms, 3 * float(norm / longest)), None

    patch.setattr(sequential, "clip_factors", factors)
    return run


def spent_twice(patch, run):
    """Two gradient steps behind one noise."""
    once = rounds.gradient_step

    def twice(*given):
        once(*given)
        once(*given)

    patch.setattr(rounds, "gradient_step", twice)
    return run


def released_twice(patch, run):
    """More local steps than the ledger counts."""
    return replace(run, plans=[replace(plan, layers=(None, *plan.layers)) for plan in run.plans])


def without_numbers(shards, neighbour, stream):
    """A record of no numbers is added."""
    features = shards.features.clone()
    features[torch.as_tensor(neighbour.places)] = torch.nan
    changed = replace(shards, features=features)
    return replace(changed, absent=neighbour.places), changed


def nan_passes(patch, run):
    def factors(norms, norm, factor):
        return factor(norms, norm), None

    for module in (clipping, sequential, backends):
        patch.setattr(module, "clip_factors", factors)
    return replace(run, worlds=without_numbers)


def centred(patch, run):
    """Every batch less its mean, as layers that normalise batches have it."""
    plain = minibatches.Minibatches.records

    def records(self, *given):
        features, labels, weights = plain(self, *given)
        return features - features.mean(0), labels, weights

    patch.setattr(minibatches.Minibatches, "records", records)
    return run


def stopping_early(patch, run):
    """Local steps that end once a gradient is small."""
    whole = rounds.local_steps

    def some(rules, models, anchors, batches, first=1):
        few = int(batches[0].counts.sum()) < sum(SIZES)
        whole(rules, models, anchors, batches[:1] if few else batches, first)

    patch.setattr(rounds, "local_steps", some)
    return run


SEQUENTIAL = {"training.backend": "sequential"}
ALL = {"training.batch_size": None}
CLOUD = {"algorithm": "cdp", **UPLOAD, "threat.distrusted": ["siblings", "far_devices"]}
AWAY = {**UPLOAD, **ALL, "training.local_steps": 4}
NEAR = {**UPLOAD, **ALL, "training.local_steps": 8, "training.proximal": 9.5}
BUILDS = {
    "row 1: no noise": (no_noise, {}, "noise"),
    "row 1: no noise in messages": (no_noise, UPLOAD, "noise"),
    "row 1: another process": (deaf, {}, "heard"),
    "row 2: pulled away": (pulled, AWAY, "further"),
    "row 3: shortened steps": (shortened, NEAR, "further"),
    "row 4: global models in clear": (started_in_clear, CLOUD, "more"),
    "row 6: no number": (rounded_away, {}, "no number"),
    "row 7: read before noise": (reading_before_noise, {}, "further"),
    "row 8: scaled by the brightest": (scaled_by_the_brightest, {}, "more"),
    "paper: a mean over a private number": (divided_by_drawn, {}, "further"),
    "paper: a domain of the data": (clipped_to_the_longest, SEQUENTIAL, "further"),
    "paper: spent twice": (spent_twice, {}, "further"),
    "paper: released twice": (released_twice, {}, "more"),
    "paper: NaN": (nan_passes, {}, "no number"),
    "paper: noise": (less_noise, {}, "noise"),
    "paper: noise of messages": (less_noise, UPLOAD, "noise"),
    "paper: sensitivity": (clipped(divide_by="expected", record_norm=0.4), {}, "further"),
    "not clipped": (clipped(divide_by="expected"), {}, "further"),
    "clipped as a batch": (clipped(divide_by="drawn", batch_norm=0.3), {}, "further"),
    "centred": (centred, SEQUENTIAL, "further"),
    "stopping early": (stopping_early, ALL, "otherwise"),
}


@pytest.mark.parametrize(("change", "changes", "words"), BUILDS.values(), ids=BUILDS)
def test_a_broken_build_is_caught(monkeypatch, change, changes, words):
    sizes = [1, 1, 1, 1] if changes.get("privacy.mechanism") == "upload" else SIZES
    sound = run_of(changes, sizes)
    assert not broken(sound)
    with monkeypatch.context() as patch:
        findings = broken(change(patch, run_of(changes, sizes)))
    assert findings
    assert all(words in finding for finding in findings), findings
