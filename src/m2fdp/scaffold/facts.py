"""What local rules need that keep something of devices from round to round."""

from __future__ import annotations

from collections.abc import Iterator

from m2fdp.core.errors import InputError
from m2fdp.core.experiment.facts import facts as a
from m2fdp.core.experiment.facts.rule import Feature
from m2fdp.core.experiment.request import Request


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
