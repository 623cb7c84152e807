"""A run on a DataFrame, and what to know of a run on a table."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from m2fdp.core.data.dataset import Dataset
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.core.experiment.parts import records_of
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model
from m2fdp.core.own_code import GIVEN
from m2fdp.core.privacy.summary import Promised
from m2fdp.given.loading import load_config, parse_block
from m2fdp.tables.persons import PersonModel, refuse_unfit, rows_of_unit_norm
from m2fdp.tables.regression import LINEAR
from m2fdp.tables.schema import Schema, read_schema
from m2fdp.tables.table import Table, table_of


class Tabled(PlainExperiment):
    """A run whose records may come from a table."""

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        schema: Schema | Mapping[str, Any] | str | Path,
        *sources: str | Path | Mapping[str, Any],
        **overrides: Any,
    ) -> Self:
        """The experiment of a configuration on the rows of a DataFrame.

        The values of the schema's client column are the devices, below the groups' servers, and
        the model of a label that is a number is linear. The configuration may say otherwise.

        Args:
            frame: a DataFrame of pandas, or anything with `to_pandas()`.
            schema: what may stand in it, docs/own-data.md: a file, or its content.
            sources: files, folders or mappings of keys, as `load_config` takes them.
            overrides: top-level keys, over all sources: `seed=3`.

        Raises:
            InputError: rows break the schema, or the configuration contradicts itself.
        """
        rows = frame.to_pandas() if hasattr(frame, "to_pandas") else frame
        if not isinstance(rows, pd.DataFrame):
            raise InputError("frame", type(frame).__name__, "is no DataFrame, nor has to_pandas()")
        if isinstance(schema, str | Path):
            schema = read_schema(str(schema))
        elif not isinstance(schema, Schema):
            schema = parse_block(Schema, schema, "schema")
        given: dict[str, Any] = {"dataset.name": "table"}
        table = table_of(rows, schema, load_config(given, *sources, **overrides).seed)
        if schema.label.range is not None:
            given |= {"model.name": LINEAR, "partition.scheme": "iid"}
        if table.clients is not None:
            given |= {
                "partition.scheme": "column",
                "topology.edges": table.edges,
                "topology.fanouts": None,
                "topology.trust.ratios": None,
            }
            if not schema.groups:  # the default is of a tier that is not there
                given["training.local_aggregation"] = None
        return cls.from_config(load_config(given, *sources, **overrides), table)

    @property
    def classified(self) -> tuple[Shape, int]:
        """Of persons: a model is for their rows."""
        shape, n_classes = super().classified
        return _row_of(self.dataset) or shape, n_classes

    def build_model(self, seed: int) -> Model:
        model, row = super().build_model(seed), _row_of(self.dataset)
        return model if row is None else PersonModel.of(model, row)

    def inputs_of(
        self, dataset: Dataset, on_chunk: Callable[[int, int], None] = lambda done, total: None
    ) -> Dataset:
        if _row_of(dataset) is None or self.config.dataset.scale != "unit_norm":
            return super().inputs_of(dataset, on_chunk)
        return rows_of_unit_norm(dataset)

    def check_split(self, sizes: np.ndarray) -> None:
        """Also refuse what is not defined for persons of several rows."""
        if _row_of(self.dataset) is not None:
            refuse_unfit(self)
        super().check_split(sizes)

    def of_records(self) -> list[str]:
        # A person has one label of several: a class that lacks among them may be among rows.
        return super().of_records() if _row_of(self.dataset) is None else list(self.repeats)

    def by_client(self, state_dict: Mapping[str, Tensor]) -> pd.DataFrame:
        """What a model is worth on the test records of each client, worst first.

        Returns:
            A row a client: `client, records, accuracy, loss` and the run's own metrics, NaN where a
            client's records do not suffice for one. Labels that are numbers have no accuracy, and
            the worst has the largest `mae`, or loss. Empty where nobody says whose records are.
        """
        samples, clients = self.held_out, self.dataset.clients
        if clients is None or self.config.partition.held_out_by == "devices":
            return pd.DataFrame()
        set_exact_arithmetic()
        weights, rows = parameters_to_vector(state_dict.values()), []
        for client in sorted(set(clients[samples]) - {""}):
            features, labels = records_of(self.inputs, samples[clients[samples] == client], "cpu")
            with torch.no_grad():
                scores = self.model.answers(weights, features)
                losses = self.model.loss(scores, labels)
            row = {"client": client, "records": len(labels)}
            if self.dataset.label_range is None:
                row["accuracy"] = float((scores.argmax(dim=1) == labels).double().mean())
            row["loss"] = float(losses.double().mean())
            arrays = labels.numpy(), scores.numpy(), losses.numpy()
            rows.append(row | self._own_values(arrays))
        table = pd.DataFrame(rows)
        if not rows:
            return table
        by = next(name for name in ("accuracy", "mae", "loss") if name in table)
        return table.sort_values(by, ascending=by == "accuracy", kind="stable", ignore_index=True)

    def _own_values(self, arrays: tuple[np.ndarray, ...]) -> dict[str, float]:
        """The run's metrics by their names in tables. All were measured of all records before, so
        one that fails here is not told of so few: NaN."""
        values: dict[str, float] = {}
        for name, metric in self.metrics.items():
            values[metric.name] = nan
            with suppress(InputError):
                values |= GIVEN["metrics.values"]({name: metric}, *arrays)
        return values


def _row_of(dataset: Dataset) -> Shape | None:
    """(C, H, W) of a row where records are persons of several; else None."""
    schema = dataset.schema if isinstance(dataset, Table) else None
    if schema is None or schema.record is None:
        return None
    height, width, channels = schema.shape
    return channels, height, width


def promised(assembly: Assembly) -> Promised:
    """Who a record is, if that is no single row, and who the clients are, if no schema says it."""
    schema = assembly.dataset.schema if isinstance(assembly.dataset, Table) else None
    if schema is None and assembly.config.partition.scheme == "column":
        return Promised(("who the clients are is public, and none has a single training record",))
    if schema is None or schema.record is None:
        return Promised()
    column, most = schema.record.column, schema.record.rows
    sentence = (
        f"the column {column} names persons: a record is a person, whose rows, at most {most}, "
        "have their gradients summed before the sum is clipped"
    )
    return Promised((sentence,), {"record": f"one person ({column}), of at most {most} rows"})


def notes(assembly: Assembly) -> list[str]:
    """What became of records that is not as one may think."""
    return list(assembly.dataset.notes)
