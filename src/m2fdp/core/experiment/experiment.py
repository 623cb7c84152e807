"""`PlainExperiment`: what is done with a run that is put together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from m2fdp.core.config import Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.process import Process
from m2fdp.core.engine.rules import TooLongError
from m2fdp.core.engine.training import (
    SILENT,
    Checkpointing,
    DivergenceError,
    Evaluation,
    Listener,
    Progress,
    confusion_matrix,
    divergence,
    evaluate,
    one_class_only,
    train,
)
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.parts import records_of
from m2fdp.core.experiment.promise import Promising
from m2fdp.core.experiment.results import Trained
from m2fdp.core.formatting import counted
from m2fdp.core.models.registry import Model


@dataclass(frozen=True, eq=False, repr=False)
class PlainExperiment(Promising):
    """What can be asked of every run; users have `m2fdp.Experiment`, which knows all rooms.

    Whatever computes numbers sets exact arithmetic first (one thread an operator, no TF32), for the
    whole process: results depend on nothing around the experiment.
    """

    @classmethod
    def from_config(
        cls, config: Config, dataset: Dataset | None = None, manifest: pd.DataFrame | None = None
    ) -> Self:
        """The experiment of a configuration, on its own data set and split or on given ones."""
        kind = type(config).__name__  # a line has no room for the value
        if not isinstance(config, Config):
            raise InputError("config", kind, "is no Config; load_config makes one of a mapping")
        return cls(config, dataset, manifest)

    def __repr__(self) -> str:
        """What is trained how, on what, and with how much privacy."""
        config, devices = self.config, counted(self.plan.network.tree.n_devices, "device")
        privacy, asked = config.privacy, f"epsilon {config.privacy.epsilon:g}"
        if privacy.noise_multiplier is not None:
            asked = f"{privacy.noise_multiplier:g} times the sensitivity"
        promised = f"{privacy.mechanism} at {asked}"
        return (
            f"Experiment({config.algorithm} on {config.dataset.name}: {devices}, "
            f"{config.model.name}, {counted(config.training.rounds, 'round')} of "
            f"{self.round_in_words}, {promised if self.plan.private else 'no privacy'}, seed "
            f"{config.seed})"
        )

    def check(self) -> None:
        """Refuse what model, privacy and network have against the data, before more is computed."""
        _ = self.manifest

    def train(
        self,
        listener: Listener = SILENT,
        start: Progress | None = None,
        checkpointing: Checkpointing | None = None,
        process: Process | None = None,
    ) -> Trained:
        """Train the rounds that the budget affords, from a start that the run has reached before.

        Raises:
            InputError: there are no records to test on, the model has diverged, or rounding it
                would tell of a record.
        """
        _ = self.evaluated
        set_exact_arithmetic()
        process = process or self.process()
        try:
            state, metrics = train(self.run(process), listener, start, checkpointing)
        except DivergenceError as error:
            raise self.too_large(error) from None
        except TooLongError as error:
            raise self.too_long(error) from None
        finally:
            process.executor.workers.end()
        model = process.simulation.model
        weights = state.weights.cpu()
        named = model.unflatten(weights)
        line = self._wrong(model, weights, metrics.iloc[-1])
        return Trained({name: value.clone() for name, value in named.items()}, metrics, line)

    def _wrong(self, model: Model, weights: Tensor, last: pd.Series) -> str | None:
        """What is wrong with how a run ended; nothing is said of labels that devices hold out."""
        n_classes, labels = self.dataset.n_classes, self.dataset.labels[self.held_out]
        of_devices = self.config.partition.held_out_by == "devices"
        shares = np.full(n_classes, 1 / n_classes)
        if not of_devices and n_classes > 1:
            shares = np.bincount(labels, minlength=n_classes) / len(labels)
        diverged = divergence(model, float(last["loss"]), shares)
        if diverged is not None:
            key, change = self.smaller_steps
            if self.config.training.accumulated_noise is not None:
                key += ", or training.accumulated_noise"
            return f"{diverged}; choose a {change} {key}"
        if of_devices or not np.isclose(shares, last["accuracy"], atol=1e-9).any():
            return None
        found = evaluate(model, weights, *records_of(self.inputs, self.held_out, "cpu"))
        counts = confusion_matrix(labels, found.predictions.numpy(), n_classes)
        answers = one_class_only(counts.to_numpy())
        return None if answers is None else f"the model answers {answers}"

    def evaluate(self, state_dict: Mapping[str, Tensor]) -> Evaluation:
        """What a model, such as `Trained.state_dict`, is worth on `held_out`, on the CPU."""
        set_exact_arithmetic()
        weights = parameters_to_vector(state_dict.values())
        records = records_of(self.inputs, self.evaluated, "cpu")
        return evaluate(self.model, weights, *records, metrics=self.metrics)

    def confusion_matrix(self, state_dict: Mapping[str, Tensor]) -> pd.DataFrame:
        """How many of `held_out` are of each true label (rows) and predicted one (columns), or of
        each tenth of the range of numbers."""
        dataset, predicted = self.dataset, self.evaluate(state_dict).predictions.numpy()
        labels = dataset.strata(dataset.labels[self.held_out])
        return confusion_matrix(labels, dataset.strata(predicted), dataset.n_strata)
