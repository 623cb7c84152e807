"""What a run is: every fact with the key that breaks it and the value that gives it."""

from __future__ import annotations

from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.core.config import PIXELS
from m2fdp.core.config.reference import in_yaml
from m2fdp.core.engine.local_rules import GradientStep, adds_up
from m2fdp.core.engine.server_rules import adding
from m2fdp.core.experiment.facts.rule import Fact
from m2fdp.core.experiment.request import Request
from m2fdp.core.models.names import SPLIT_MODELS
from m2fdp.core.own_code import is_own


def noised_later(run: Request) -> bool:
    """Whether noise comes after several local steps."""
    return run.plan.private and not run.mechanism.noises_every_step


def has_plain_steps(run: Request) -> bool:
    """Whether a local step is the gradient step, without a rule of its own."""
    return isinstance(run.plan.rules.local, GradientStep)


def has_sums(run: Request) -> bool:
    """Whether some messages are read in sums only."""
    return bool(run.config.secure_aggregation.layers)


def has_masks(run: Request) -> bool:
    """Whether masks hide the terms of sums."""
    return has_sums(run) and run.config.secure_aggregation.protocol == "masks"


def _is(key: str, value: object, text: str) -> Fact:
    return Fact(key, in_yaml(value), text, lambda run: bool(run.value(key) == value))


def _is_not(key: str, value: object, remedy: str, text: str) -> Fact:
    return Fact(key, remedy, text, lambda run: bool(run.value(key) != value))


# fmt: off
# --- the algorithm -----------------------------------------------------------------------------

WHOLE_MODELS = Fact("algorithm", "one of local steps, such as m2fdp", "whole models in local steps",
    lambda run: run.way is None and run.network.splits is None)
PLAIN_STEPS = Fact("algorithm", "one without a local rule of its own", "plain gradient steps",
    has_plain_steps)
ADDED_STEPS = Fact("algorithm", "m2fdp", "gradient steps that a local rule adds to the model",
    lambda run: adds_up(run.plan.rules.local))
NOTHING_KEPT = Fact("algorithm", "m2fdp", "devices that keep nothing between rounds",
    lambda run: not run.keeping)
PRIVATE = Fact("algorithm", "a private one, such as m2fdp",
    "an algorithm that clips and adds noise", lambda run: run.plan.private)
_ABLE = (name for name, algorithm in ALGORITHMS.items() if algorithm.controllable)
CONTROLLABLE = Fact("algorithm", " or ".join(_ABLE),
    "an algorithm that it belongs to, not {algorithm}", lambda run: run.algorithm.controllable)

# --- rounds, and who takes part ------------------------------------------------------------------

NOT_BY_CHANCE = Fact("training.participation", "null", "devices that do not join by chance",
    lambda run: run.joining is None, lambda run: run.joining)
PLAIN_MEANS = Fact("training.estimator", "mean, and example_cap: null",
    "plain means of what devices send", lambda run: run.weighing is None, lambda run: run.weighing)
NOT_DRAWN = Fact("training.participants", "null", "devices of which no fixed number is drawn",
    lambda run: run.participants is None, lambda run: run.participants)
KNOWN_ROUNDS = _is("control.enabled", False, "rounds that are known before training")
HELD_BY_CLOUD = _is("partition.held_out_by", "cloud", "validation records that the cloud holds")

# --- the tree and its sums -----------------------------------------------------------------------

TWO_TIERS = Fact("topology.fanouts", "two numbers or more",
    "edge servers whose participation it can choose", lambda run: run.network.tree.depth >= 2)
EQUAL_WEIGHTS = _is("topology.weights", "uniform", "equal weights of a server's children")
FIXED_SERVERS = Fact("topology.super_nodes.kind", "fixed", "servers that stay what they are",
    lambda run: not run.network.elected)
SINGLE_MESSAGES = Fact("secure_aggregation.layers", "[]", "messages that are read one by one",
    lambda run: not has_sums(run))
SUMS_OF_SERVERS = Fact("secure_aggregation.layers", "layers of servers",
    "sums whose members all come",
    lambda run: run.network.tree.depth not in run.network.sums.layers,
    lambda run: run.network.tree.depth)
NOBODY_SILENT = Fact("secure_aggregation.dropout", "0", "members of a sum that do not fall silent",
    lambda run: not has_sums(run) or run.config.secure_aggregation.dropout == 0)
SUMS_IN_CLEAR = Fact("secure_aggregation.protocol", "ideal", "sums without masks",
    lambda run: not has_masks(run))
MASKED_SUMS = _is("secure_aggregation.protocol", "masks", "sums that no node makes in clear")
READ_BY_PARENTS = _is("secure_aggregation.decode", "parent", "servers that read what they add up")

# --- local steps and the server's ----------------------------------------------------------------

NO_PULL = Fact("training.proximal", "0", "local steps without a proximal term",
    lambda run: run.plan.schedule.proximal == 0)
PULL_TO_RECEIVED = Fact("training.proximal_center", "received",
    "a proximal term that is centred at the model received",
    lambda run: run.plan.schedule.proximal == 0 or run.plan.schedule.center == "received")
CONSTANT_STEPS = _is("training.step_size", "constant", "equal step sizes in all rounds")
AVERAGE = _is("training.server.rule", "average", "the rule average at the cloud")
NOISE_ADDS_UP = Fact("training.server.rule", "average or momentum",
    "a server rule under which noise adds up",
    lambda run: adding(run.plan.rules.server) is not None)
STEPS_APART = _is_not("training.backend", "stacked", "auto", "devices that step one by one")
STEPS_OF_TIERS = Fact("training.backend", "auto", "steps of a device and its server",
    lambda run: run.training.backend in ("auto", "reference"))
ONE_BACKEND = _is("training.backend", "auto", "the one way in which its two parties step")
ON_PROCESSORS = _is("device", "cpu", "processors, not a GPU")

# --- the promise ---------------------------------------------------------------------------------

NOISE_AT_EVERY_STEP = Fact("privacy.mechanism", "gradient", "noise at every step",
    lambda run: not noised_later(run))
NOISE_AFTER_STEPS = Fact("privacy.mechanism", "upload", "noise on whole updates",
    lambda run: not run.mechanism.noises_every_step)
GRADIENT = _is("privacy.mechanism", "gradient", "noise on a client's gradients too")
CLIPPED_STEPS = Fact("privacy.mechanism", "gradient or upload", "clipped steps, not clipped models",
    lambda run: not run.clipping.of_models)
KNOWN_MECHANISM = Fact("privacy.mechanism", "gradient",
    "noise that is known to be drawn anew each time", lambda run: not is_own(run.privacy.mechanism))
OF_RECORDS = _is("privacy.unit", "record", "a promise for single records")
CALIBRATED = _is("privacy.calibration", "accountant", "an epsilon that noise is calibrated to")
NO_MULTIPLIER = Fact("privacy.calibration", "accountant", "noise that follows from an epsilon",
    lambda run: run.privacy.noise_multiplier is None)
EQUAL_COUNTS = _is_not("privacy.adjacency", "add_remove", "zero_out or replace_one",
    "neighbours with as many records")

# --- models and features -------------------------------------------------------------------------

MODEL_IN_PARTS = Fact("model.name", " or ".join(SPLIT_MODELS), "a model that can be cut in two",
    lambda run: run.config.model.name in SPLIT_MODELS)
KNOWN_MODEL = Fact("model.name", "one of the list",
    "a model that is known to judge records one by one",
    lambda run: not is_own(run.config.model.name))
RECORDS_APART = Fact("model.norm", "group", "activations that mix no records of a batch",
    lambda run: run.config.model.name != "resnet" or run.config.model.norm != "batch")
OF_PIXELS = _is("features.map", PIXELS, "pixels, which can be reconstructed")
CLOCK_OF_STEPS = _is_not("tiering.profile", "paper", "clock",
    "times of single steps (D's Table 2 is of whole epochs)")
