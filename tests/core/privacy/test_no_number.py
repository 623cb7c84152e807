"""What is no number passes no check of privacy and of the engine: every comparison with it is
false, so that a refusal has to say what must hold, and not what must not."""

import ast
from dataclasses import replace
from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from tests.builders import experiment_of

import m2fdp
from m2fdp.core.engine.rules import TooLongError, refuse_too_long
from m2fdp.core.errors import InputError
from m2fdp.core.privacy import calibration
from m2fdp.core.privacy.accounting import ShiftLaw, subsampled
from m2fdp.core.privacy.calibration import check_delta

SOURCE = Path(m2fdp.__file__).parent
ROOMS_OF_THE_CORE = ("privacy", "engine", "schedule", "topology", "algorithms", "experiment")
ROOMS = (*("core/" + room for room in ROOMS_OF_THE_CORE), *("zones", "global_dp", "scaffold"))
# Comparisons of whole numbers, which are numbers by their type.
COUNTS = {
    "calls > 1",
    "said[key] > count",
    "result.cloud_rounds > result.uplinks",
    "result.uplinks - result.cloud_rounds > local",
    "tier > self.model.n_tiers",
    "participants > most",
    "network.tree.depth < 2",
    "tree.depth < 2",
    "n_nodes > MAX_NODES",
    "layer > depth",
}


def refusals(tree):
    """The conditions under which something is raised."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and any(isinstance(x, ast.Raise) for x in node.body):
            yield node.test


def passing(test, must_hold=False):
    """The comparisons of a refusal's condition that are false of what is no number, and so let it
    pass: those that no `not` turns round."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            yield from passing(test.operand, not must_hold)
        case ast.BoolOp():
            for part in test.values:
                yield from passing(part, must_hold)
        case ast.Compare(ops=operators):
            ordered = any(isinstance(x, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for x in operators)
            if ordered and not must_hold:
                yield test
        case ast.Call(func=ast.Name(id="any" | "all" | "bool" | "float")):
            for part in test.args:
                inner = part.elt if isinstance(part, ast.GeneratorExp) else part
                yield from passing(inner, must_hold)


def counts(comparison):
    """Whether what is compared is a number of things."""
    text = ast.unparse(comparison)
    is_length = any(
        isinstance(side, ast.Call) and ast.unparse(side.func) == "len"
        for side in (comparison.left, *comparison.comparators)
    )
    return is_length or text in COUNTS


def test_no_refusal_lets_pass_what_is_no_number():
    found = {
        f"{file.relative_to(SOURCE)}: {ast.unparse(comparison)}"
        for room in ROOMS
        for file in sorted((SOURCE / room).rglob("*.py"))
        for test in refusals(ast.parse(file.read_text(encoding="utf-8")))
        for comparison in passing(test)
        if not counts(comparison)
    }
    assert found == set()


def test_the_search_finds_what_lets_it_pass_and_nothing_else():
    source = "if not a <= b or (c > d and e):\n raise E\nif len(a) < 2:\n raise E\nif x < y:\n pass"
    found = [ast.unparse(y) for x in refusals(ast.parse(source)) for y in passing(x)]
    assert found == ["c > d", "len(a) < 2"]


@pytest.mark.parametrize("law", [((nan,), (1.0,)), ((0.0, 1.0), (nan, 0.5)), ((-1.0,), (1.0,))])
def test_no_law_is_made_of_it(law):
    with pytest.raises(ArithmeticError, match="a record can't move a release by"):
        ShiftLaw(*law)


def test_noise_that_is_no_number_covers_nothing():
    with pytest.raises(ArithmeticError):
        subsampled(0.1).scaled(1 / nan)


@pytest.mark.parametrize("length", [nan, inf, 2.0])
def test_no_length_is_none(length):
    with pytest.raises(TooLongError):
        refuse_too_long(length, 1.0, 0.1, "here")
    refuse_too_long(length, inf, 0.1, "here")  # of a run that promises nothing by it
    refuse_too_long(1.0, 1.0, 0.1, "here")
    with pytest.raises(TooLongError):
        refuse_too_long(1.0, nan, 0.1, "here")


@pytest.mark.parametrize(("delta", "rate"), [(nan, 0.5), (1e-3, nan)])
def test_a_delta_that_is_no_number_is_refused(delta, rate):
    with pytest.raises(InputError, match="privacy.delta"):
        check_delta(delta, np.array([10, 20]), np.array([rate, 0.5]), 10)


@pytest.mark.parametrize("deviation", [nan, inf])
def test_a_mechanism_whose_noise_is_no_finite_number_is_refused(monkeypatch, deviation):
    mechanism = calibration.get_mechanism("gradient")

    class Broken(type(mechanism)):
        def noise(self, *args):
            noise = super().noise(*args)
            return replace(noise, steps=np.full_like(noise.steps, deviation))

    monkeypatch.setattr(calibration, "get_mechanism", lambda name: Broken())
    with pytest.raises(InputError, match="privacy.mechanism = 'gradient': draws noise whose dev"):
        experiment_of({"topology.fanouts": [2, 2]}).calibrate()
