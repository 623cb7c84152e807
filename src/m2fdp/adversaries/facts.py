"""What audits and attacks are defined for."""

from collections.abc import Iterator

from m2fdp.convergence.facts import EQUAL_ROUNDS
from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature, always, refuse
from m2fdp.core.experiment.request import Request
from m2fdp.core.privacy.sight import AT_CLOUD, FAR_DEVICES, PUBLIC

# Who sees models, and nothing of single devices.
SEES_MODELS = (PUBLIC, FAR_DEVICES)


def check_audit(config: Config, plan: Plan) -> None:
    """Refuse, by an `InputError`, audits of what has no noise, and of rounds that a method is not
    made for."""
    by_neighbours = config.audit.method == "neighbours"
    refuse(PLANNED_ROUNDS if by_neighbours else EQUAL_ROUNDS, Request(config, plan))
    if not plan.private:
        remedy = "adds no noise, so there is no bound to audit"
        raise InputError("algorithm", config.algorithm, remedy)


def check_attack(config: Config, plan: Plan) -> None:
    """Refuse, by an `InputError`, attacks that are not defined for a run."""
    refuse(ATTACK, Request(config, plan))


def _of_membership(run: Request) -> Iterator[InputError]:
    """An observer that sees models, and no more."""
    observer = run.config.attack.observer
    if observer not in (None, *SEES_MODELS):
        text = (
            "reads more than models, which is all that lira judges by: use public, far_devices or "
            "null here, or test what it is promised with --pipelines=audit"
        )
        yield InputError("attack.observer", observer, text)


def _of_reconstruction(run: Request) -> Iterator[InputError]:
    """A round of the run, and an observer that is not trusted anyway."""
    attack, rounds = run.config.attack, run.plan.schedule.rounds
    observer = attack.observer or AT_CLOUD
    if attack.round > rounds:
        yield InputError("attack.round", attack.round, f"is none of training.rounds = {rounds}")
    if observer == AT_CLOUD and run.network.trust[0][0]:
        text = (
            f"is trusted by algorithm: {run.config.algorithm}; use trusted_servers, or who gets "
            "its broadcasts, such as far_devices"
        )
        yield InputError("attack.observer", observer, text)


# fmt: off
PLANNED_ROUNDS = (Feature("an audit by neighbours", always, (a.KNOWN_ROUNDS,)),)
ATTACK = (
    *EQUAL_ROUNDS,
    Feature("an attack, which asks for the score of a label,", always, (a.OF_CLASSES,)),
    Feature("attack.method: lira", lambda run: run.config.attack.method == "lira",
        values=_of_membership),
    Feature("a reconstruction (attack.method)", lambda run: run.config.attack.method != "lira",
        (a.NOTHING_KEPT, a.NOT_DRAWN, a.SUMS_IN_CLEAR, a.NOBODY_SILENT, a.FIXED_SERVERS,
         a.OF_PIXELS), "attack.method: lira", values=_of_reconstruction),
)
