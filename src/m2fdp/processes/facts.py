"""What a run on other machines needs."""

from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.facts import Feature

FEATURES = (
    Feature(
        "execution.engine: ray",
        lambda run: run.config.execution.engine == "ray",
        (a.WHOLE_MODELS, a.SUMS_IN_CLEAR, a.STEPS_APART, a.ON_PROCESSORS),
        "execution.engine: local",
    ),
)
