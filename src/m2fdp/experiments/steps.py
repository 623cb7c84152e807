"""What a user is told of steps that are too large."""

from __future__ import annotations

from m2fdp.config import Config
from m2fdp.errors import InputError
from m2fdp.simulation.training import DivergenceError


def key_of_steps(config: Config) -> str:
    """What a user changes to change the size of steps."""
    return "control.step_size_factor" if config.control.enabled else "training.learning_rate"


def too_large(config: Config, error: DivergenceError) -> InputError:
    """The line for a run whose model is no longer made of numbers."""
    value: object = config.training.learning_rate
    if config.control.enabled:
        value = f"eta {error.step_size:.3g}"
    return InputError(key_of_steps(config), value, f"{error}; choose a smaller one")
