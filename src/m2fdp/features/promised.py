"""What a run's promise rests on where features other than pixels were fitted on public images."""

from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.privacy.summary import Promised
from m2fdp.features.mapping import fitted_on


def promised(assembly: Assembly) -> Promised:
    """That the features' sources are public; nothing where there are none."""
    sources = fitted_on(assembly.config.features)
    if not sources:
        return Promised()
    named = ", ".join(sources)
    sentence = f"what the features were fitted on ({named}) is public: no device's record is in it"
    return Promised((sentence,), {"features_fitted_on": sources})
