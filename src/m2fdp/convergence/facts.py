"""What steps that noise shortens need, and what a bound on convergence is of."""

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature, always, refuse
from m2fdp.core.experiment.request import Request


def check_bound(config: Config, plan: Plan) -> None:
    """Refuse bounds on convergence where rounds are not alike, or steps are not plain.

    Raises:
        InputError: naming the key.
    """
    refuse(BOUND, Request(config, plan))


def _shortens(run: Request) -> bool:
    return run.plan.private and run.training.accumulated_noise is not None


# fmt: off
FEATURES = (
    Feature("training.accumulated_noise", _shortens,
        (a.KNOWN_ROUNDS, a.WHOLE_MODELS, a.NOISE_ADDS_UP, a.PLAIN_STEPS, a.CLIPPED_STEPS,
         a.KNOWN_MECHANISM), "null", "training.accumulated_noise"),
    Feature("training.accumulated_noise without noise at every step",
        lambda run: _shortens(run) and a.noised_later(run), (a.NO_PULL,), "null",
        "training.accumulated_noise"),
)
# Of runs that are audited by canaries, bounded or attacked.
EQUAL_ROUNDS = (
    Feature("a pipeline of equal rounds (audit by canaries, bound, attack)", always,
        (a.WHOLE_MODELS, a.KNOWN_ROUNDS, a.HELD_BY_CLOUD, a.NOT_BY_CHANCE, a.PLAIN_MEANS)),
)
BOUND = (
    *EQUAL_ROUNDS,
    Feature("a bound on convergence", always,
        (a.NOTHING_KEPT, a.AVERAGE, a.NO_PULL, a.CLIPPED_STEPS)),
)
