"""What a user is told of a run and its steps."""

from __future__ import annotations

from math import isfinite

from m2fdp.core.algorithms import Plan, get_algorithm
from m2fdp.core.config import Config
from m2fdp.core.engine.lengths import TooLongError
from m2fdp.core.engine.training import DivergenceError
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.promise import asked
from m2fdp.core.formatting import counted


def smaller_steps(config: Config) -> tuple[str, str]:
    """What a user changes to take smaller steps, and how."""
    if not config.control.enabled:
        return "training.learning_rate", "smaller"
    if config.control.gap == "papers":
        return "control.step_size_factor", "smaller"
    return "control.smoothness", "larger"


def too_large(config: Config, error: DivergenceError | TooLongError) -> InputError:
    """The line for a run whose model is no longer made of numbers."""
    value: object = config.training.learning_rate
    if config.control.enabled:
        value = f"eta {error.step_size:.3g}"
    key, change = smaller_steps(config)
    return InputError(key, value, f"{error}; choose a {change} one")


def too_long(config: Config, error: TooLongError) -> InputError:
    """The line for a run whose model has outgrown what a record does to it, or its numbers. Noise
    is in steps, as what a record does: longer steps alone do not help against it."""
    if not isfinite(error.length):
        return too_large(config, error)
    privacy, server = config.privacy, config.training.server
    if config.control.enabled:
        key, eta = smaller_steps(config)[0], f"eta {error.step_size:.3g}"
        return InputError(key, eta, f"{error}; take longer steps")
    if server.rule == "yogi":
        key = "training.server.learning_rate"
        return InputError(key, server.learning_rate, f"{error}; choose a smaller one")
    key, value, change = "privacy.epsilon", privacy.epsilon, "larger"
    if privacy.noise_multiplier is not None:
        key, value, change = "privacy.noise_multiplier", privacy.noise_multiplier, "smaller"
    remedy = "or, where noise is not what makes the model long, a larger training.learning_rate"
    return InputError(key, value, f"{error}; choose a {change} one, {remedy}")


def advised(config: Config, wrong: str | None) -> str | None:
    """What is wrong with how a run ended, if anything is, and what to change."""
    if wrong is None:
        return None
    key, change = smaller_steps(config)
    if config.training.accumulated_noise is not None:
        key += ", or training.accumulated_noise"
    return f"{wrong}; choose a {change} {key}"


def as_noise_allows(config: Config, accumulated: float, step: float) -> str:
    """How long steps are where noise has a say in it.

    Args:
        accumulated: what noise alone would make of a parameter in steps as scheduled.
        step: the (first) step size that is trained with.
    """
    training = config.training
    scheduled = f"training.learning_rate = {training.learning_rate:g}"
    said = (
        f"{scheduled} stays, with which noise alone would give every parameter a deviation of "
        f"{accumulated:.3g}"
    )
    if step < training.learning_rate:
        said = (
            f"steps of {step:.4g}; with {scheduled} noise alone would give every parameter a "
            f"deviation of {accumulated:.3g}"
        )
    return f"training.accumulated_noise = {training.accumulated_noise:g}: {said}"


def in_words(config: Config, plan: Plan) -> str:
    """What is trained how, on what, and with how much privacy."""
    promised = f"{config.privacy.mechanism} at {asked(config.privacy)}"
    devices = counted(plan.network.tree.n_devices, "device")
    return (
        f"{config.algorithm} on {config.dataset.name}: {devices}, "
        f"{config.model.name}, {rounds_in_words(config)}, "
        f"{promised if plan.private else 'no privacy'}, seed {config.seed}"
    )


def rounds_in_words(config: Config) -> str:
    """How many rounds there are, and what happens in one."""
    training = config.training
    what = counted(training.local_steps, "step")
    if get_algorithm(config.algorithm).tiers is not None:
        what = counted(training.local_epochs, "epoch")
    return f"{counted(training.rounds, 'round')} of {what}"
