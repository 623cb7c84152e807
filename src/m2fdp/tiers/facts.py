"""What goes with split models and tiers."""

from collections.abc import Iterator
from dataclasses import replace

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Fact, Feature
from m2fdp.core.experiment.request import Request
from m2fdp.nets import SPLIT_MODELS
from m2fdp.tiers.config import TRAINED
from m2fdp.tiers.scheduler import TABLE_TIERS
from m2fdp.tiers.split_noise import exposed_splits
from m2fdp.tiers.ways import way_of

Wrong = Iterator[InputError]
_LARGE_FOR_ADAM = 0.05


def surprises(config: Config, plan: Plan) -> list[str]:
    """A line for each thing that is allowed in tiers and is seldom what was meant."""
    way, training, tiering = way_of(config), config.training, config.tiering
    lines: list[str] = []
    if way is None:
        return lines
    if training.learning_rate > _LARGE_FOR_ADAM:
        lines.append(
            f"training.learning_rate = {training.learning_rate:g} is far above D's 0.001: steps of "
            "Adam are of that length whatever the gradient"
        )
    believed = tiering.profile == "paper" and tiering.schedule == "dynamic"
    if way.tiered and believed and tiering.tiers > TABLE_TIERS:
        lines.append(
            f"tiering.profile = paper: D's Table 2 has {TABLE_TIERS} tiers, and the times of the "
            f"lowest of tiering.tiers = {tiering.tiers} are a guess of this code's; use "
            f"{TABLE_TIERS}, or profile: clock"
        )
    return lines


def _in_epochs(run: Request) -> bool:
    return way_of(run.config) is not None


def _splits(run: Request) -> bool:
    return run.network.splits is not None


def _averages_nothing(run: Request) -> bool:
    way = way_of(run.config)
    return way is not None and not way.averaged


# fmt: off
FACTS = (
    replace(a.WHOLE_MODELS, key="algorithm", remedy="one of local steps, such as m2fdp",
        holds=lambda run: not _in_epochs(run) and not _splits(run)),
)
_MODEL_IN_PARTS = Fact("a model that can be cut in two", "model.name", " or ".join(SPLIT_MODELS),
    lambda run: run.config.model.name in SPLIT_MODELS)
_STEPS_OF_TIERS = Fact("steps of a device and its server", "training.backend", "auto",
    lambda run: run.training.backend in ("auto", "reference"))
_ONE_BACKEND = a.where("the one way in which its two parties step", "training.backend", "auto")
_CLOCK_OF_STEPS = a.unless("times of single steps (D's Table 2 is of whole epochs)",
    "tiering.profile", "paper", "clock")
# fmt: on


def _of_labels(run: Request) -> Wrong:
    """A randomised label spends a part of epsilon."""
    privacy = run.privacy
    if privacy.labels == "randomised" and privacy.label_epsilon >= privacy.epsilon:
        text = f"must be below privacy.epsilon = {privacy.epsilon:g}, which it is a part of"
        yield InputError("privacy.label_epsilon", privacy.label_epsilon, text)


def _of_tiers(run: Request) -> Wrong:
    """Whole batches, tiers and modules that the model has."""
    config, training, way = run.config, run.training, way_of(run.config)
    model, tiers = config.model.name, config.tiering.tiers
    cuts = SPLIT_MODELS.get(model, tiers)
    if way is not None and way.tiered and tiers > cuts:
        yield InputError("tiering.tiers", tiers, f"is more than {model}'s {cuts}")
    if model != "resnet" and config.clock.model != TRAINED:
        text = f"has other modules than model.name: {model}; use {TRAINED}"
        yield InputError("clock.model", config.clock.model, text)
    if training.batch_size is not None and training.batch_size % 1 > 0:
        text = "must be whole, as batches are exact"
        yield InputError("training.batch_size", training.batch_size, text)
    if training.plateau.factor < 1 and training.evaluate_every > 1:
        text = "leaves a plateau (training.plateau.factor) rounds that it can't see; use 1"
        yield InputError("training.evaluate_every", training.evaluate_every, text)


# fmt: off
FEATURES = (
    Feature("an activation that goes to a server that nobody trusts",
        lambda run: bool(exposed_splits(run.network).any()),
        (a.GRADIENT, a.EQUAL_COUNTS, a.OF_RECORDS, a.NOT_BY_CHANCE, a.PLAIN_MEANS),
        values=_of_labels),
    Feature("algorithm: {algorithm}, which splits models,", _splits,
        (a.NOISE_AT_EVERY_STEP, a.OF_RECORDS, _MODEL_IN_PARTS, a.RECORDS_APART,
         a.SINGLE_MESSAGES, a.NOT_DRAWN, a.NOT_BY_CHANCE, a.FIXED_SERVERS, a.STEPS_APART)),
    Feature("algorithm: {algorithm}, which splits models in single steps,",
        lambda run: _splits(run) and not _in_epochs(run), (_CLOCK_OF_STEPS,)),
    Feature("algorithm: {algorithm}", _averages_nothing, (_ONE_BACKEND, a.AVERAGE)),
    Feature("algorithm: {algorithm}, which trains in tiers,", _in_epochs,
        (_MODEL_IN_PARTS, _STEPS_OF_TIERS, a.CONSTANT_STEPS, a.NOT_BY_CHANCE, a.NO_PULL,
         a.EQUAL_WEIGHTS, a.SINGLE_MESSAGES), values=_of_tiers),
)
