"""Tables with several rows a person, of whom each is one record.

A record's image is a bag: a line for each row, its inputs and then its label, one number a class,
of which one is 1. In a line of nobody all are 0. A record's loss is the sum over its rows, and so
is its gradient, which the engine clips, draws and counts like any other. Neither the engine nor the
ledger knows of rows: what is promised of a record is promised of a person.

Gradients are summed, not averaged: without clipping the model is that of all rows, each with the
same weight, whoever's it is.

A row that is tested on is a bag of its own: models are judged by rows, as without persons.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from m2fdp.core.config import PIXELS, Config
from m2fdp.core.data.dataset import Dataset, of_unit_norm
from m2fdp.core.errors import InputError
from m2fdp.core.formatting import counted
from m2fdp.core.models.checks import KEY
from m2fdp.core.models.losses import Loss
from m2fdp.core.models.registry import Model, unflattened
from m2fdp.core.own_code import FORM, is_own
from m2fdp.sources.schema import Record

_MODELS = ("softmax", "logistic", "svm", "dense")  # which take inputs in any order


@dataclass(frozen=True, eq=False)
class Persons:
    """Who the n rows of a table are of.

    Attributes:
        number: (n,), each row's person.
        kept: bool (n,), whether a row is not beyond the most that a person may have.
        labels: (P,), the label of most of each person's kept rows; of several the first.
        clients: (P,), each person's client; None where no row names one.
        split: (P,), what each person is for; None where no row says.
        note: how many persons and rows there are, and how many rows are left out.
    """

    number: np.ndarray
    kept: np.ndarray
    labels: np.ndarray
    clients: np.ndarray | None
    split: np.ndarray | None
    note: str

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
        """The persons of some rows, in the order in which they first come.

        Args:
            names: (n,), what the rows call them.
            labels: (n,), the rows' labels.
            clients: (n,), the rows' clients, or None.
            split: (n,), what the rows are for, or None.
            refuse: makes an error of what is wrong.

        Raises:
            InputError: a person has rows at several clients, or both to train and to test on.
        """
        number, distinct = pd.factorize(names)
        kept = pd.Series(number).groupby(number).cumcount().to_numpy() < record.rows
        rows = pd.DataFrame({"person": number, "label": labels, "row": np.arange(len(number))})
        votes = rows[kept].groupby(["person", "label"])["row"].agg(["size", "min"]).reset_index()
        votes = votes.sort_values(["person", "size", "min"], ascending=[True, False, True])
        label = votes.drop_duplicates("person")["label"].to_numpy()
        _, first = np.unique(number, return_index=True)

        def of_each(values: np.ndarray | None, where: str, one: str) -> np.ndarray | None:
            if values is None:
                return None
            if strayed := len(np.unique(number[values != values[first][number]])):
                persons = f"{counted(strayed, 'person')} {'has' if strayed == 1 else 'have'} rows"
                raise refuse(f"record: {persons} {where}; valid: one {one} a person")
            return values[first]

        of_persons = (
            of_each(clients, "at several clients", "client"),
            of_each(split, "to train and to test on", "split"),
        )
        note = f"a record is a person ({record.column}): {len(distinct):,} with {len(names):,} rows"
        if beyond := int((~kept).sum()):
            note += f"; {counted(beyond, 'row')} beyond {record.rows} of a person left out"
        return cls(number, kept, label, *of_persons, note)

    def bags(
        self,
        inputs: np.ndarray,
        labels: np.ndarray,
        rows: np.ndarray,
        n_train: int,
        shape: tuple[int, int],
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        """The records that rows make: persons to train on, and single rows to test on.

        Args:
            inputs: (n, D), all rows as a model takes them.
            labels: (n,), all rows' labels.
            rows: numbers of the rows that are used, those to train on first.
            n_train: how many these are.
            shape: the most rows of a person, and the number of classes.

        Returns:
            Bags (N, rows, D + classes, 1), labels (N,), the first row of each, (N,), and how many
            of them are persons.
        """
        names = self.number[rows]
        names[n_train:] = len(self.labels) + np.arange(len(rows) - n_train)
        bag, _ = pd.factorize(names)
        place = pd.Series(bag).groupby(bag).cumcount().to_numpy()
        first = rows[place == 0]
        (most, n_classes), n_inputs = shape, inputs.shape[1]
        images = np.zeros((len(first), most, n_inputs + n_classes, 1), dtype=np.float32)
        images[bag, place, :n_inputs, 0] = inputs[rows]
        images[bag, place, n_inputs + labels[rows], 0] = 1
        n_persons = len(first) - (len(rows) - n_train)
        of_persons = self.labels[self.number[first[:n_persons]]]
        return images, np.concatenate([of_persons, labels[first[n_persons:]]]), first, n_persons


def rows_of_unit_norm(dataset: Dataset, n_inputs: int) -> Dataset:
    """The data set of bags with each row's inputs over their own length."""
    rows = dataset.images[:, :, :n_inputs].reshape(-1, 1, n_inputs, 1)
    nobodys = np.zeros(len(rows), dtype=np.int64)
    scaled = of_unit_norm(Dataset("rows", rows, nobodys, 0, 1)).images
    images = dataset.images.copy()
    images[:, :, :n_inputs] = scaled.reshape(images[:, :, :n_inputs].shape)
    return replace(dataset, images=images)


def refuse_unfit(config: Config) -> None:
    """Refuse what is not defined for persons of several rows.

    Raises:
        InputError: a model that takes no rows, features in their place, or validation records.
    """
    model, fraction = config.model.name, config.partition.validation_fraction
    if not (model in _MODELS or is_own(model)):
        valid = f"valid: {', '.join(_MODELS)}, {FORM}"
        raise InputError(KEY, model, f"takes no rows of a person (`record` of the schema); {valid}")
    if config.features.map != PIXELS:
        problem = f"is not of a person's rows (`record` of the schema); valid: {PIXELS}"
        raise InputError("features.map", config.features.map, problem)
    if fraction > 0:
        problem = "holds out persons, and models are judged by rows; valid: 0, and a test split"
        raise InputError("partition.validation_fraction", fraction, problem)


class Bag(nn.Module):
    """By a module of rows the scores of bags' rows, beside their labels: (B, rows, 2 classes)."""

    def __init__(self, row: nn.Module, n_inputs: int) -> None:
        super().__init__()
        self.row, self.n_inputs = row, n_inputs

    def forward(self, bags: Tensor) -> Tensor:
        n, _, rows, _ = bags.shape
        inputs = bags[..., : self.n_inputs].reshape(n * rows, 1, 1, self.n_inputs)
        labels = bags[:, 0, :, self.n_inputs :]
        return torch.cat([self.row(inputs).view(n, rows, -1), labels], dim=-1)


@dataclass(frozen=True)
class SummedLoss:
    """The losses (B,) of bags, each the sum over its rows; of scores (B, C) of rows their own."""

    loss: Loss

    def __call__(self, scores: Tensor, labels: Tensor) -> Tensor:
        if scores.dim() == 2:
            return self.loss(scores, labels)
        of_rows, said = scores.chunk(2, dim=-1)
        losses = self.loss(of_rows.flatten(0, 1), said.argmax(-1).flatten())
        return torch.where(said.sum(-1) > 0, losses.view(said.shape[:2]), 0.0).sum(-1)


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonModel(Model):
    """A model of bags with the parameters of a model of rows, by the same names. Each bag passes it
    alone: the engine's short cuts for linear layers are of one row's gradient."""

    row: Model
    n_inputs: int

    @classmethod
    def of(cls, row: Model, n_inputs: int) -> Self:
        module, loss = Bag(row.module, n_inputs), SummedLoss(row.loss)
        return cls(row.name, module, loss, is_own=True, row=row, n_inputs=n_inputs)

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        return self.row.unflatten(vector)

    def scores(self, vector: Tensor, features: Tensor) -> Tensor:
        """What the loss takes of bags."""
        parameters = unflattened(dict(self.module.named_parameters()), vector)
        return torch.func.functional_call(self.module, parameters, (features,))

    def answers(self, vector: Tensor, features: Tensor) -> Tensor:
        """Scores (B, classes) of the first row of each bag."""
        return self.row.scores(vector, features[:, :, :1, : self.n_inputs])
