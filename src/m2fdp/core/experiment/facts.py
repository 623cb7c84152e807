"""What a run is: facts, each with the key that breaks it, and features that need them.

A feature times a feature is never told: a feature needs facts, and a key that breaks one is
refused. A room tells the facts that its keys break and the features that it brings.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from m2fdp.core.blocks import Block
from m2fdp.core.engine.rules import GradientStep, adding, adds_up
from m2fdp.core.errors import BLOCK, InputError
from m2fdp.core.experiment.request import Request
from m2fdp.core.formatting import in_yaml
from m2fdp.core.own_code import is_own
from m2fdp.core.rooms import brought


def always(run: Request) -> bool:
    """What holds of every run."""
    return True


@dataclass(frozen=True)
class Fact:
    """What a run is, unless one key breaks it.

    Attributes:
        text: the fact as a noun: what a feature "needs". A fact of a room has the core's text.
        key: dotted key of the value, or of the block, that breaks it; "" where no key of the core
            does.
        remedy: the value that gives it.
        holds: whether a run is so.
        shown: what breaks it, where that is not the key's value.
    """

    text: str
    key: str = ""
    remedy: str = ""
    holds: Callable[[Request], bool] = always
    shown: Callable[[Request], object] | None = None


@dataclass(frozen=True)
class Feature:
    """What a run can have, or what can be asked of it, and the facts that it needs.

    Attributes:
        name: the feature as a noun, which "needs"; {algorithm} stands for the algorithm's name.
        there: whether a run has it.
        needs: the facts, in the order in which they are asked for.
        otherwise: what does without the feature.
        key: the key that asks for it, where that is refused and not the fact's.
        shown: what the key asks for, where that is not its value.
        values: the lines on its own values, which are asked for after the facts.
    """

    name: str
    there: Callable[[Request], bool]
    needs: tuple[Fact, ...] = ()
    otherwise: str = ""
    key: str = ""
    shown: Callable[[Request], object] | None = None
    values: Callable[[Request], Iterable[InputError]] = lambda run: ()


def refuse(features: Iterable[Feature], run: Request) -> None:
    """Refuse a run of which a feature needs a fact that does not hold.

    Raises:
        InputError: the first such fact, or a feature's first wrong value.
    """
    for line in refusals(features, run):
        raise line


def refusals(features: Iterable[Feature], run: Request) -> Iterator[InputError]:
    """All lines that refuse a run, in the order of features."""
    for feature in features:
        if feature.there(run):
            for fact in map(told, feature.needs):
                if not fact.holds(run):
                    yield _missing(feature, fact, run)
            yield from feature.values(run)


def told(fact: Fact) -> Fact:
    """The fact as told by the room whose keys break it, or as it is."""
    of_rooms = (each for facts in brought("facts") for each in facts)
    return next((each for each in of_rooms if each.text == fact.text), fact)


def _missing(feature: Feature, fact: Fact, run: Request) -> InputError:
    if feature.key:
        key, shown = feature.key, feature.shown
        text, ways = f"needs {fact.text}", (feature.otherwise, f"{fact.key}: {fact.remedy}")
    else:
        key, shown = fact.key, fact.shown
        text, ways = f"{feature.name} needs {fact.text}", (fact.remedy, feature.otherwise)
    value = shown(run) if shown is not None else run.value(key)
    text = f"{text}; use {', or '.join(filter(None, ways))}"
    text = text.replace("{algorithm}", run.config.algorithm)
    return InputError(key, BLOCK if isinstance(value, Block) else value, text)


def noised_later(run: Request) -> bool:
    """Whether noise comes after several local steps."""
    return run.plan.private and not run.mechanism.noises_every_step


def has_plain_steps(run: Request) -> bool:
    """Whether a local step is the gradient step, without a rule of its own."""
    return isinstance(run.plan.rules.local, GradientStep)


def where(text: str, key: str, value: object) -> Fact:
    """The fact that a key has a value."""
    return Fact(text, key, in_yaml(value), lambda run: bool(run.value(key) == value))


def unless(text: str, key: str, value: object, remedy: str) -> Fact:
    """The fact that a key does not have a value."""
    return Fact(text, key, remedy, lambda run: bool(run.value(key) != value))


# fmt: off
# --- what every plain run is; a room whose keys break it tells which, and what gives it ---------

WHOLE_MODELS = Fact("whole models in local steps")
KNOWN_ROUNDS = Fact("rounds that are known before training")
FIXED_SERVERS = Fact("servers that stay what they are")
NOT_BY_CHANCE = Fact("devices that do not join by chance")
PLAIN_MEANS = Fact("plain means of what devices send")
SINGLE_MESSAGES = Fact("messages that are read one by one")
SUMS_OF_SERVERS = Fact("sums whose members all come")
NOBODY_SILENT = Fact("members of a sum that do not fall silent")
SUMS_IN_CLEAR = Fact("sums without masks")
OF_PIXELS = Fact("pixels, which can be reconstructed")

# --- the algorithm -----------------------------------------------------------------------------

PLAIN_STEPS = Fact("plain gradient steps", "algorithm", "one without a local rule of its own",
    has_plain_steps)
ADDED_STEPS = Fact("gradient steps that a local rule adds to the model", "algorithm", "m2fdp",
    lambda run: adds_up(run.plan.rules.local))
NOTHING_KEPT = Fact("devices that keep nothing between rounds", "algorithm", "m2fdp",
    lambda run: not run.keeping)
PRIVATE = Fact("an algorithm that clips and adds noise", "algorithm",
    "a private one, such as m2fdp", lambda run: run.plan.private)

# --- rounds, and who takes part ------------------------------------------------------------------

NOT_DRAWN = Fact("devices of which no fixed number is drawn", "training.participants", "null",
    lambda run: run.participants is None, lambda run: run.participants)
HELD_BY_CLOUD = where("validation records that the cloud holds", "partition.held_out_by", "cloud")
EQUAL_WEIGHTS = where("equal weights of a server's children", "topology.weights", "uniform")

# --- local steps and the server's ----------------------------------------------------------------

NO_PULL = Fact("local steps without a proximal term", "training.proximal", "0",
    lambda run: run.plan.schedule.proximal == 0)
PULL_TO_RECEIVED = Fact("a proximal term that is centred at the model received",
    "training.proximal_center", "received",
    lambda run: run.plan.schedule.proximal == 0 or run.plan.schedule.center == "received")
CONSTANT_STEPS = where("equal step sizes in all rounds", "training.step_size", "constant")
AVERAGE = where("the rule average at the cloud", "training.server.rule", "average")
NOISE_ADDS_UP = Fact("a server rule under which noise adds up", "training.server.rule",
    "average or momentum", lambda run: adding(run.plan.rules.server) is not None)
STEPS_APART = unless("devices that step one by one", "training.backend", "stacked", "auto")
ON_PROCESSORS = where("processors, not a GPU", "device", "cpu")

# --- the promise ---------------------------------------------------------------------------------

NOISE_AT_EVERY_STEP = Fact("noise at every step", "privacy.mechanism", "gradient",
    lambda run: not noised_later(run))
NOISE_AFTER_STEPS = Fact("noise on whole updates", "privacy.mechanism", "upload",
    lambda run: not run.mechanism.noises_every_step)
GRADIENT = where("noise on a client's gradients too", "privacy.mechanism", "gradient")
CLIPPED_STEPS = Fact("clipped steps, not clipped models", "privacy.mechanism", "gradient or upload",
    lambda run: not run.clipping.of_models)
KNOWN_MECHANISM = Fact("noise that is known to be drawn anew each time", "privacy.mechanism",
    "gradient", lambda run: not is_own(run.privacy.mechanism))
OF_RECORDS = where("a promise for single records", "privacy.unit", "record")
CALIBRATED = where("an epsilon that noise is calibrated to", "privacy.calibration", "accountant")
NO_MULTIPLIER = Fact("noise that follows from an epsilon", "privacy.calibration", "accountant",
    lambda run: run.privacy.noise_multiplier is None)
EQUAL_COUNTS = unless("neighbours with as many records", "privacy.adjacency", "add_remove",
    "zero_out or replace_one")

# --- labels and models --------------------------------------------------------------------------

OF_CLASSES = Fact("labels that are classes")
KNOWN_MODEL = Fact("a model that is known to judge records one by one", "model.name",
    "one of the list", lambda run: not is_own(run.config.model.name))
RECORDS_APART = Fact("activations that mix no records of a batch", "model.norm", "group",
    lambda run: run.config.model.name != "resnet" or run.config.model.norm != "batch")
