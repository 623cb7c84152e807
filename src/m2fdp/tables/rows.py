"""Raw rows for a trained model: what its schema makes of them, and what an answer looks like."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.special import softmax

from m2fdp.core.data.dataset import Dataset, features, of_unit_norm, unscaled
from m2fdp.core.errors import InputError
from m2fdp.given.loading import parse_block
from m2fdp.tables.encoding import check, inputs_of, lacking
from m2fdp.tables.pictures import nobodys
from m2fdp.tables.schema import Column, Schema
from m2fdp.tables.table import Table

LABEL = "label"  # of an answer; beside it a column a class, its chance


@dataclass(frozen=True, eq=False)
class RowMap:
    """How rows become inputs of a model, and its scores answers.

    Attributes:
        schema: that of the table that the model was trained on.
        scale: `dataset.scale` of its run.
    """

    schema: Schema
    scale: str

    @classmethod
    def of(cls, dataset: Dataset, scale: str) -> Self | None:
        """That of a data set; None where it is no table."""
        if not isinstance(dataset, Table) or dataset.schema is None:
            return None
        return cls(dataset.schema, scale)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """What `content` returned."""
        return cls(parse_block(Schema, content["schema"], "schema"), content["scale"])

    @property
    def content(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"schema": self.schema.model_dump(mode="json"), "scale": self.scale}

    def inputs(self, rows: pd.DataFrame, folder: Path = Path()) -> np.ndarray:
        """Inputs (n, C, H, W), float32, of rows with the schema's columns, in any order.

        Args:
            folder: where files lie that cells name.

        Raises:
            InputError: a column is not there, or a cell can't be read.
        """
        refuse = partial(InputError, "rows", f"{len(rows)} of them")
        if problem := lacking(rows.columns, self.schema, labelled=False):
            raise refuse(problem)
        named = rows.rename(columns=lambda name: str(name).strip())
        if named.index.dtype.kind != "i":
            named = named.reset_index(drop=True)
        inputs, faults = inputs_of(named, self.schema, folder)
        check(faults, self.schema, refuse, "row {}".format)
        if self.scale == "unit_norm":
            nobodys = np.zeros(len(inputs), dtype=np.int64)
            inputs = of_unit_norm(Dataset("rows", inputs, nobodys, 0, 1)).images
        return features(inputs)

    def answers(self, scores: np.ndarray) -> pd.DataFrame:
        """A row a row: the likeliest class's name, and each class's chance by its name; or the
        number, in the units of the label's column, maybe beyond its range."""
        if (bounds := self.schema.label.range) is not None:
            return pd.DataFrame({LABEL: unscaled(scores[:, 0], bounds)})
        chances = softmax(scores.astype(np.float64), axis=1)
        names = np.array(self.schema.classes, dtype=object)
        answers = pd.DataFrame({LABEL: names[scores.argmax(axis=1)]})
        return answers.assign(**{name: chances[:, c] for c, name in enumerate(names)})

    @property
    def needed(self) -> dict[str, bool]:
        """The columns, and whether none of a column's cells may be empty."""
        return {name: column.missing is None for name, column in self.schema.columns.items()}

    def example(self) -> dict[str, Any]:
        """A row that is nobody's: the middle of each range, the first of each column's kinds."""
        return {name: _middle(column) for name, column in self.schema.columns.items()}


def _middle(column: Column) -> Any:
    if column.range is not None:
        return sum(column.range) / 2
    if column.image is not None:
        return nobodys(column.image)
    return (column.categories or ["a text"])[0]
