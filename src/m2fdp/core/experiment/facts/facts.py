"""What a run is: the facts with the key that breaks them and the value that gives them."""

from m2fdp.core.engine.rules import GradientStep, adding, adds_up
from m2fdp.core.experiment.facts.rule import Fact
from m2fdp.core.experiment.request import Request
from m2fdp.core.own_code import is_own
from m2fdp.core.yaml_files import in_yaml


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

NOT_BY_CHANCE = Fact("devices that do not join by chance", "training.participation", "null",
    lambda run: run.joining is None, lambda run: run.joining)
PLAIN_MEANS = Fact("plain means of what devices send", "training.estimator", "mean",
    lambda run: run.weighing is None, lambda run: run.weighing)
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

# --- models --------------------------------------------------------------------------------------

KNOWN_MODEL = Fact("a model that is known to judge records one by one", "model.name",
    "one of the list", lambda run: not is_own(run.config.model.name))
RECORDS_APART = Fact("activations that mix no records of a batch", "model.norm", "group",
    lambda run: run.config.model.name != "resnet" or run.config.model.norm != "batch")
