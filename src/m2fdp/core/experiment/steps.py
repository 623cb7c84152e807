"""What a user is told of a run and its steps."""

from __future__ import annotations

from math import isfinite

from m2fdp.core.config import Config
from m2fdp.core.engine.lengths import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError


def too_large(config: Config, error: DivergenceError | TooLongError) -> InputError:
    """The line for a run whose model is no longer made of numbers."""
    key, value = "training.learning_rate", config.training.learning_rate
    return InputError(key, value, f"{error}; choose a smaller one")


def too_long(config: Config, error: TooLongError) -> InputError:
    """The line for a run whose model has outgrown what a record does to it, or its numbers. Noise
    is in steps, as what a record does: longer steps alone do not help against it."""
    if not isfinite(error.length):
        return too_large(config, error)
    privacy, server = config.privacy, config.training.server
    if server.rule == "yogi":
        key = "training.server.learning_rate"
        return InputError(key, server.learning_rate, f"{error}; choose a smaller one")
    key, value, change = "privacy.epsilon", privacy.epsilon, "larger"
    if privacy.noise_multiplier is not None:
        key, value, change = "privacy.noise_multiplier", privacy.noise_multiplier, "smaller"
    remedy = "or, where noise is not what makes the model long, a larger training.learning_rate"
    return InputError(key, value, f"{error}; choose a {change} one, {remedy}")
