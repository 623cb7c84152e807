"""What reads pixels does not read features."""

from dataclasses import replace

from m2fdp.core.config import PIXELS
from m2fdp.core.experiment import facts as a

FACTS = (
    replace(
        a.OF_PIXELS,
        key="features.map",
        remedy=PIXELS,
        holds=lambda run: run.config.features.map == PIXELS,
    ),
)
