"""Controlled rounds: what is planned is what is trained, billed and accounted."""

from dataclasses import replace
from math import sqrt
from typing import NamedTuple

import numpy as np
import pytest
import torch
from tests.builders import records_of

from m2fdp import load_config
from m2fdp.control import run as policies
from m2fdp.control.run import ControllerState, plan_round
from m2fdp.core.engine.process import State
from m2fdp.core.engine.training import CourseState, Progress
from m2fdp.core.errors import InputError
from m2fdp.core.schedule.rounds import RoundPlan
from m2fdp.core.schedule.schedule import Schedule
from m2fdp.costs.config import ResourcesConfig
from m2fdp.costs.resources import Links
from m2fdp.experiment import Experiment

EDGES = "parent,child\nc,A\nc,B\nA,0\nA,1\nA,2\nB,3\nB,4\nB,5\nB,6\n"
GRADIENT = {"epsilon": 4, "clipping_norm": 0.5}
UPLOAD = GRADIENT | {"mechanism": "upload", "calibration": "paper"}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """A function that makes a small run: A with devices 0…2 is trusted, B with 3…6 is not."""
    edges = tmp_path_factory.mktemp("tree") / "edges.csv"
    edges.write_text(EDGES)
    records = records_of([12] * 7)

    usual = {"batch_size": 6, "learning_rate": 123.0, "step_size": "inverse_sqrt"}
    trust = {"ratios": None, "untrusted": ["B"]}

    def make(privacy=GRADIENT, smoothness="estimated", rounds=8, controlled=True, **control):
        config = load_config(
            {
                "topology": {"fanouts": None, "edges": str(edges), "trust": trust},
                "training": usual | {"rounds": rounds},
                "privacy": privacy,
                "control": {"enabled": True, "gap": "papers", "smoothness": smoothness}
                | {"max_local_steps": 6, "tau": 20, "alpha_3": 0.1}
                | control
                if controlled
                else {},
                "threads": 1,
            }
        )
        return Setting(Experiment.from_config(config, *records))

    return make


class Setting:
    """An experiment, and its rounds one by one."""

    def __init__(self, experiment):
        self.experiment, self.plan = experiment, experiment.run_plan
        self.mechanisms = experiment.calibrate().mechanisms
        self.process = experiment.process()
        self.simulation = self.process.simulation
        run = experiment.run(self.process)
        self.policy, self.spent = run.policy, run.measures.spent

    def train(self, state=None, course_state=None):
        """Every round that is left: what was decided, and what was known after it."""
        state = self.process.start() if state is None else state
        course_state = self.policy.start(state) if course_state is None else course_state
        done = []
        while state.round < len(self.plan.rounds):
            decision = self.policy.decide(Progress(state, course_state=course_state))
            state = self.process.round(state, decision.plan)
            course_state = self.policy.learn(state, course_state)
            done.append(Done(state, decision.logged, course_state))
        return done


class Done(NamedTuple):
    state: State
    decisions: dict[str, float]
    course_state: CourseState


@pytest.mark.parametrize("tau", [20, 23, 3])
def test_the_plan_is_what_the_controller_chooses_and_never_passes_tau(make, tau):
    setting = make(tau=tau, rounds=40)
    steps = [len(round_.layers) for round_ in setting.plan.rounds]
    assert sum(steps) == tau
    between = ControllerState(setting.experiment.controller.problem.total_steps)
    children = np.array([3, 4])
    for t, round_ in enumerate(setting.plan.rounds, start=1):
        control, between = plan_round(setting.experiment.controller, between, beta=0.1 * t)
        assert control.choice.local_steps == len(round_.layers)
        sizes = [control.choice.trusted, control.choice.untrusted]
        assert setting.plan.networks[round_.network].present.tolist() == sizes
        if t == 1:
            assert sizes == children.tolist() and round_.network == 0
    assert between.remaining == 0
    assert setting.plan.networks[0] is setting.experiment.plan.network
    sizes = [tuple(network.present) for network in setting.plan.networks]
    assert len(set(sizes)) == len(sizes)


def test_rounds_end_a_plan_before_tau_does(make):
    setting = make(rounds=2)
    assert len(setting.plan.rounds) == len(setting.mechanisms[0].ledger.plans) == 2
    assert sum(len(round_.layers) for round_ in setting.plan.rounds) < 20
    assert len(setting.train()) == 2


@pytest.mark.parametrize("privacy", [GRADIENT, UPLOAD], ids=["gradient", "upload"])
def test_a_controlled_round_is_that_round_of_a_run_scheduled_so(make, privacy):
    """To the bit, its bill and its epsilon too; and step sizes are gamma / sqrt(t + 1)."""
    setting = make(privacy, smoothness=0.25, step_size_factor=2.0)
    assert len({round_.network for round_ in setting.plan.rounds}) > 1
    state = setting.process.start()
    energy = delay = 0.0
    rounds = setting.train()
    assert len(rounds) == len(setting.plan.rounds)
    for t, (done, planned) in enumerate(zip(rounds, setting.plan.rounds, strict=True), start=1):
        network = setting.plan.networks[planned.network]
        mechanism = setting.mechanisms[planned.network]
        eta = 2.0 / 20 / 0.25 / sqrt(t + 1)
        schedule = Schedule(8, len(planned.layers), {1: 2}, eta, "constant")
        assert planned.layers == schedule.layers()
        alone = replace(setting.simulation, networks=(network,), mechanisms=(mechanism,))
        process = setting.experiment.process(alone)
        state = process.round(state, RoundPlan(schedule.layers(), eta))
        assert done.state.round == t
        assert torch.equal(done.state.weights, state.weights)
        links = Links(network, mechanism.lock_step, 640, ResourcesConfig())
        cost = links.round(planned.layers)
        energy, delay = energy + cost.energy_j, delay + cost.delay_s
        assert setting.spent(t) == (energy, delay)
        assert done.decisions["eta"] == pytest.approx(eta)
        assert done.decisions["K"] == schedule.local_steps
        assert [done.decisions["s_trusted"], done.decisions["s_untrusted"]] == list(network.present)
    assert [r.decisions["remaining"] for r in rounds] == [
        20 - sum(r.decisions["K"] for r in rounds[:t]) for t in range(len(rounds))
    ]
    assert setting.mechanisms[0].epsilon(len(rounds)) <= 4 or privacy is UPLOAD


@pytest.mark.parametrize("smoothness", ["estimated", 0.5])
def test_rounds_go_on_after_any_as_if_never_stopped(make, smoothness):
    setting = make(smoothness=smoothness)
    whole = setting.train()
    for done in whole:
        rest = setting.train(done.state, done.course_state)
        assert len(rest) == len(whole) - done.state.round
        for again, before in zip(rest, whole[done.state.round :], strict=True):
            assert torch.equal(again.state.weights, before.state.weights)
            assert again.decisions == before.decisions
            assert again.course_state.keys() == before.course_state.keys()
            for name, tensor in again.course_state.items():
                assert torch.equal(tensor, before.course_state[name])


def test_beta_is_the_largest_change_of_a_gradient_seen_so_far(make):
    """Along the run, by autograd over each device's own records."""
    setting = make(step_size_factor=20.0)
    rounds = setting.train()
    estimates = [r.decisions["beta"] for r in rounds] + [float(rounds[-1].course_state["beta"])]
    assert estimates == sorted(estimates)
    models = [setting.process.start().weights] + [r.state.weights for r in rounds]

    def gradient(weights, device):
        rows = slice(12 * device, 12 * device + 12)
        vector = weights.clone().requires_grad_()
        scores = setting.simulation.model.scores(vector, setting.simulation.shards.features[rows])
        loss = setting.simulation.model.loss(scores, setting.simulation.shards.labels[rows]).mean()
        return torch.autograd.grad(loss, vector)[0]

    start = [gradient(models[0], j) for j in range(7)]
    away = [models[0] - g / g.norm() for g in start]
    largest = max((gradient(w, j) - start[j]).norm().item() for j, w in enumerate(away))
    assert estimates[0] == pytest.approx(largest, rel=1e-4)
    for t in range(1, len(models)):
        moved = (models[t] - models[t - 1]).norm().item()
        for j in range(7):
            change = (gradient(models[t], j) - gradient(models[t - 1], j)).norm().item()
            largest = max(largest, change / moved)
        assert estimates[t] == pytest.approx(largest, rel=1e-4)


def test_a_declared_beta_needs_no_gradient(make, monkeypatch):
    def never(*arguments):
        raise AssertionError("gradients of raw records")

    monkeypatch.setattr(policies, "gradients_at", never)
    monkeypatch.setattr(policies, "first_look", never)
    rounds = make(smoothness=0.5).train()
    assert {r.decisions["beta"] for r in rounds} == {0.5}


def test_a_beta_that_can_not_be_estimated_is_refused_before_the_first_round(make):
    setting = make()
    setting.simulation.shards.features.zero_()
    with pytest.raises(InputError, match="control.smoothness = 'estimated': can't be estimated"):
        setting.train()


def test_equal_rounds_cost_multiples(make):
    experiment = make(controlled=False).experiment
    plan, mechanism = experiment.plan, experiment.calibrate().mechanism
    links = Links(plan.network, mechanism.lock_step, 640, ResourcesConfig())
    cost = links.round(plan.schedule.layers())
    spent = experiment.run().measures.spent
    for t in range(1, 9):
        assert spent(t) == (t * cost.energy_j, t * cost.delay_s)
