"""A user's own code in a private run."""

from operator import attrgetter

from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.experiment.results import OwnPart
from m2fdp.core.metrics import KEY
from m2fdp.core.own_code import is_ours, is_own
from m2fdp.core.privacy.mechanisms import get_mechanism
from m2fdp.given.own_code import file_of
from m2fdp.own.rules import OneByOne, OwnRule

_SHOWN_ONLY = "looks at nothing but the labels, scores and losses that it is handed"
_PUBLIC = "holds nothing that was learnt from private records"
_ALONE = (
    "; each record passes it alone, so that no layer shows one record anything of another, and "
    "what dropout takes of it follows from the record and the step, and is not counted on"
)
_HANDED_ONLY = "touches records only through what it is handed, and keeps nothing for later"
# Keys that name own code, what it is for, what is trusted of it, and whether that is enforced.
_NAMED = (
    (
        "privacy.mechanism",
        "mechanism",
        "draws the noise that it counts on, and says no less of a record than is true",
        False,
    ),
    ("model.name", "model", _PUBLIC, True),
    ("model.loss", "loss", _PUBLIC, True),
    ("partition.scheme", "split", "tells nothing by which device holds which record", False),
    (
        "dataset.name",
        "data set",
        "makes of each record what it says, and nothing of it of another's",
        False,
    ),
)
# Where noise comes after several steps, the ledger's shifts are those of plain ones.
_NO_FURTHER = ", and parts two models no further than plain steps do"


def own_parts(config: Config, plan: Plan) -> tuple[OwnPart, ...]:
    """The user's own code in a run, which has a promise to keep; nothing where it has none."""
    if not plan.private:
        return ()
    named = [
        (KEY, name, "metric", _SHOWN_ONLY, True) for name in config.training.metrics if is_own(name)
    ]
    clipping = get_mechanism(config.privacy.mechanism).clipping(config.privacy)
    for key, part, trusted, enforced in _NAMED:
        name = attrgetter(key)(config)
        if name is not None and is_own(name):
            trusted += _ALONE if part == "model" and clipping.record_norm is not None else ""
            named.append((key, name, part, trusted, enforced))
    return (
        *_of_the_plan(config, plan),
        *(
            OwnPart(key, name, part, file_of(name), trusted, enforced)
            for key, name, part, trusted, enforced in named
        ),
    )


def _of_the_plan(config: Config, plan: Plan) -> list[OwnPart]:
    """Of an algorithm's plan and rules those that are a user's."""
    name, parts = config.algorithm, []

    def add(what: str, thing: object, trusted: str, enforced: bool) -> None:
        file = file_of(name if is_own(name) else type(thing).__module__)
        parts.append(OwnPart("algorithm", name, what, file, trusted, enforced))

    rules = plan.rules
    if is_own(name):
        add("plan", plan, "plans nothing by private records", True)
    if isinstance(rules.local, OwnRule):
        mechanism, privacy = get_mechanism(config.privacy.mechanism), config.privacy
        by_steps = mechanism.clipping(privacy).batch_norm and not mechanism.noises_every_step
        trusted = _HANDED_ONLY + (_NO_FURTHER if by_steps else "")
        add("local rule", rules.local.rule, trusted, False)
    if not is_ours(rules.server):
        add("server rule", rules.server, _HANDED_ONLY, False)
    if isinstance(rules.clip_factor, OneByOne):
        add("clip factor", rules.clip_factor.factor, "follows from the norm that it is given", True)
    return parts
