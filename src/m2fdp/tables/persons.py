"""Tables with several rows a person, of whom each is one record.

A record's image is a bag (rows, D + 2, 1): a line has the D numbers of a row, a one, and the label
over the number of classes. A line of no row is zero. A record's loss is the sum over its rows, and
so is its gradient, which the engine clips, draws and counts like any other. Neither the engine nor
the ledger knows of rows: what is promised of a record is promised of a person.

Gradients are summed, not averaged: without clipping the model is that of all rows, each with the
same weight, whoever's it is. A row that is tested on is a bag of its own: models are judged by
rows, as without persons.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from m2fdp.core.config import PIXELS
from m2fdp.core.data.dataset import Dataset, features, of_unit_norm
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.parts import Parts
from m2fdp.core.formatting import counted
from m2fdp.core.models.checks import KEY, Shape
from m2fdp.core.models.losses import Loss
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.own_code import FORM
from m2fdp.tables.schema import BESIDE, Record

_OF_ROWS = "softmax, logistic, svm, linear, dense"


@dataclass(frozen=True, eq=False)
class Persons:
    """Who the n rows of a table are of, in the order in which they first come.

    Attributes:
        number: (n,), each row's person.
        kept: bool (n,), whether a row is not beyond the most that a person may have.
        labels: (P,), the label of most of each person's kept rows; of several the first.
        clients: (P,), each person's client; None where no row names one.
        split: (P,), what each person is for; None where no row says.
        record: what the schema says of persons.
    """

    number: np.ndarray
    kept: np.ndarray
    labels: np.ndarray
    clients: np.ndarray | None
    split: np.ndarray | None
    record: Record

    @classmethod
    def of(
        cls,
        names: np.ndarray,
        record: Record,
        labels: np.ndarray,
        clients: np.ndarray | None,
        split: np.ndarray | None,
        refuse: Callable[[str], InputError],
    ) -> Self:
        """The persons of rows that are told by what they call them, (n,), with their labels,
        clients and split, (n,) each.

        Raises:
            InputError: a person has rows at several clients, or both to train and to test on.
        """
        number, place = _numbered(names)
        kept, first = place < record.rows, np.flatnonzero(place == 0)
        votes = pd.DataFrame({"person": number[kept], "label": labels[kept]})
        votes["votes"] = votes.groupby(["person", "label"])["label"].transform("size")
        most = votes.sort_values("votes", ascending=False, kind="stable")
        label = most.drop_duplicates("person").sort_values("person")["label"].to_numpy()

        def of_each(values: np.ndarray | None, where: str, valid: str) -> np.ndarray | None:
            if values is None:
                return None
            if strayed := len(np.unique(number[values != values[first][number]])):
                have = f"{counted(strayed, 'person')} {'has' if strayed == 1 else 'have'} rows"
                raise refuse(f"record: {have} {where}; valid: one {valid} a person")
            return values[first]

        of_clients = of_each(clients, "at several clients", "client")
        of_split = of_each(split, "to train and to test on", "split")
        return cls(number, kept, label, of_clients, of_split, record)

    @property
    def note(self) -> str:
        """How many persons and rows there are, and how many rows are left out."""
        persons, rows = len(self.labels), len(self.number)
        note = f"a record is a person ({self.record.column}): {persons:,} with {rows:,} rows"
        if beyond := int((~self.kept).sum()):
            note += f"; {counted(beyond, 'row')} beyond {self.record.rows} of a person left out"
        return note

    def bags(
        self, inputs: np.ndarray, labels: np.ndarray, rows: np.ndarray, n_train: int, n_classes: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """The records that rows make: persons to train on, and single rows to test on.

        Args:
            inputs: (n, H, W, C), the rows, those to train on first.
            labels: (n,), their labels.
            rows: (n,), their numbers among all rows.
            n_train: how many are to train on.

        Returns:
            Bags (N, rows, D + 2, 1), labels (N,), the number of the first row of each, and how many
            bags are persons.
        """
        names = self.number[rows]
        names[n_train:] = len(self.labels) + np.arange(len(rows) - n_train)
        bag, place = _numbered(names)
        first, n_inputs = rows[place == 0], prod(inputs.shape[1:])
        images = np.zeros((len(first), self.record.rows, n_inputs + BESIDE, 1), dtype=np.float32)
        images[bag, place, :n_inputs, 0] = features(inputs).reshape(len(rows), n_inputs)
        images[bag, place, n_inputs, 0] = 1
        images[bag, place, n_inputs + 1, 0] = labels / n_classes
        n_persons = len(first) - (len(rows) - n_train)
        of_persons = self.labels[self.number[first[:n_persons]]]
        return images, np.concatenate([of_persons, labels[n_train:]]), first, n_persons


def _numbered(names: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers (n,) in the place of names, as they first come, and how often each came before."""
    number, _ = pd.factorize(names)
    return number, pd.Series(number).groupby(number).cumcount().to_numpy()


def rows_of_unit_norm(dataset: Dataset) -> Dataset:
    """The data set of bags with each row's inputs over their own length."""
    rows = dataset.images[:, :, :-BESIDE]
    flat = rows.reshape(-1, 1, rows.shape[2], 1)
    scaled = of_unit_norm(replace(dataset, images=flat)).images.reshape(rows.shape)
    images = np.concatenate([scaled, dataset.images[:, :, -BESIDE:]], axis=2)
    return replace(dataset, images=images)


def refuse_unfit(run: Parts) -> None:
    """Refuse features in the place of rows, validation records, or a model that takes no rows.

    Raises:
        InputError: as it says.
    """
    config, fraction = run.config, run.config.partition.validation_fraction
    if config.features.map != PIXELS:
        problem = f"is not of a person's rows (`record` of the schema); valid: {PIXELS}"
        raise InputError("features.map", config.features.map, problem)
    if fraction > 0:
        problem = "holds out persons, and models are judged by rows; valid: 0, and a test split"
        raise InputError("partition.validation_fraction", fraction, problem)
    row, name = getattr(run.build_model(0), "row", None), config.model.name
    if row is None or row.draws or not (row.linear or row.is_own or name in _OF_ROWS):
        problem = "takes no rows of a person (`record` of the schema)"
        raise InputError(KEY, name, f"{problem}; valid: {_OF_ROWS}, {FORM} without dropout")


class Bag(nn.Module):
    """By a module of rows (C, H, W) the scores of bags' rows, beside what says of each whether it
    is there, and its label: (B, rows, classes + 2)."""

    def __init__(self, row: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.row, self.shape = row, shape

    def forward(self, bags: Tensor) -> Tensor:
        rows, beside = bags[:, 0, :, :-BESIDE], bags[:, 0, :, -BESIDE:]
        scores = self.row(rows.reshape(-1, *self.shape))
        return torch.cat([scores.view(*rows.shape[:2], -1), beside], dim=-1)


@dataclass(frozen=True)
class SummedLoss:
    """The losses (B,) of bags, each the sum over its rows; of scores (B, C) of rows their own."""

    loss: Loss

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        if scores.dim() == 2:
            return self.loss(scores, labels)
        of_rows, there, said = scores[..., :-BESIDE], scores[..., -2] > 0, scores[..., -1]
        if not labels.is_floating_point():  # in bags that the engine draws for trials they are any
            n_classes = of_rows.shape[-1]
            said = (said * n_classes).round().clamp(0, n_classes - 1).to(labels.dtype)
        losses = self.loss(of_rows.flatten(0, 1), said.flatten())
        return torch.where(there, losses.view(there.shape), 0.0).sum(-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonModel(Model):
    """A model of bags with the parameters of a model of rows, by the same names. Each bag passes it
    alone: the engine's short cuts for linear layers are of one row's gradient."""

    row: Model
    shape: Shape  # (C, H, W) of a row

    @classmethod
    def of(cls, row: Model, shape: Shape) -> Self:
        module, loss = Bag(row.module, shape), SummedLoss(row.loss)
        return cls(row.name, module, loss, is_own=True, row=row, shape=shape)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        return self.row.unflatten(vector)

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """What the loss takes of bags."""
        parameters = unflattened(dict(self.module.named_parameters()), vector)
        return torch.func.functional_call(self.module, parameters, (features,))

    def answers(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of the first row of each bag."""
        rows = features[:, 0, 0, :-BESIDE]
        return self.row.scores(vector, rows.reshape(-1, *self.shape))
