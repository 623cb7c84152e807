"""SCAFFOLD (Karimireddy et al. 2020, option II): local steps corrected by control variates.

On the given tree and trust, with M²FDP's noise. A learner i keeps c_i, the mean of its gradients in
the last round that it took part in. It steps by g - c_i + c; c, the mean of all c_i, comes down
with the model. The paper's c_i - c + (x - y_i)/(K eta) is that mean, also where local
aggregations move models in between. Gradients are clipped and noised before anybody keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import Field

from m2fdp.core.algorithms import Algorithm, Given, Plan
from m2fdp.core.blocks import Block, Positive
from m2fdp.core.engine.rules import Descend, Named, Rules
from m2fdp.core.topology.network import Network, no_noise, noise_plan

if TYPE_CHECKING:
    from torch import Tensor
from collections.abc import Iterator

from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature
from m2fdp.core.experiment.request import Request


class ScaffoldOptions(Block):
    """Options that the paper leaves open, and whether the run is private."""

    private: bool = Field(default=True, description="False: no clipping and no noise, the paper's.")
    server_step: Positive = Field(default=1.0, description="eta_g of the server.")


@dataclass(frozen=True, eq=False)
class CorrectedStep:
    """y <- y - eta (g - c_i + c) (a `KeepingRule`), with the correction c - c_i, (n, M), and slots
    (n, M): `c`, and `moved`, the sum of a round's gradient steps."""

    device: Named = field(default_factory=dict)
    correction: Tensor | float = 0.0
    anchored: bool = False
    reports: frozenset[str] = frozenset({"c"})

    def first(self, weights: Tensor) -> Named:
        return {name: weights.new_zeros(weights.shape) for name in ("c", "moved")}

    def of(self, device: Named, server: Named) -> CorrectedStep:
        return replace(self, device=device, correction=server["c"] - device["c"])

    def step(self, models: Tensor, anchors: Tensor | None, eta: float, descend: Descend) -> None:
        before = models.clone()
        descend(models)
        self.device["moved"].add_(before.sub_(models))
        models.sub_(self.correction, alpha=eta)

    def report(self, device: Named, steps: int, eta: float) -> tuple[Named, Named]:
        """c_i is the mean of the round's gradients; its change is reported."""
        c = device["moved"] / (steps * eta)
        return {"c": c}, {"c": c - device["c"]}


@dataclass(frozen=True)
class ScaffoldServer:
    """x <- x + eta_g (mean y - x), c <- c + mean (c_i - c_i before) (a `HearingRule`)."""

    step_size: float = 1.0

    def start(self, weights: Tensor) -> Named:
        return {"c": weights.new_zeros(weights.shape)}

    def hear(self, slots: Named, reported: Named) -> Named:
        return {"c": slots["c"] + reported["c"]}

    def step(self, weights: Tensor, aggregate: Tensor, slots: Named) -> tuple[Tensor, Named]:
        return weights.lerp(aggregate, self.step_size), slots


def _plan(given: Given) -> Plan:
    options = given.options if isinstance(given.options, ScaffoldOptions) else ScaffoldOptions()
    place = noise_plan(given.tree, given.trust) if options.private else no_noise(given.tree)
    rules = Rules(CorrectedStep(), ScaffoldServer(options.server_step))
    network = Network(given.tree, given.trust, place)
    return Plan(network, given.schedule, options.private, rules)


SCAFFOLD = Algorithm("scaffold", "SCAFFOLD", "baseline", _plan, options=ScaffoldOptions)


def _of_slots(run: Request) -> Iterator[InputError]:
    """What a local rule reports, the server rule hears."""
    if run.keeping and run.keeping.reports and not hasattr(run.plan.rules.server, "hear"):
        text = (
            "has a local rule that reports and a server rule that does not hear it; valid: a "
            "server rule with hear(slots, reported)"
        )
        yield InputError("algorithm", run.config.algorithm, text)


FEATURES = (
    Feature(
        "algorithm: {algorithm}, whose local rule keeps something of devices,",
        lambda run: run.keeping is not None,
        (
            a.NOISE_AT_EVERY_STEP,
            a.NOT_BY_CHANCE,
            a.PLAIN_MEANS,
            a.NOBODY_SILENT,
            a.KNOWN_ROUNDS,
            a.WHOLE_MODELS,
        ),
        values=_of_slots,
    ),
)
