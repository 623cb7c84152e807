"""A run on a DataFrame, and what to know of a run on a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pandas as pd

from m2fdp.core.config import load_config, parse_block
from m2fdp.core.errors import InputError
from m2fdp.core.experiment.assembly import Assembly
from m2fdp.core.experiment.experiment import PlainExperiment
from m2fdp.sources.schema import Schema, read_schema
from m2fdp.sources.table import Table, table_of


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

        Where the schema has a client column, its values are the devices, below the groups' servers,
        unless the configuration says otherwise.

        Args:
            frame: a DataFrame of pandas, or anything with `to_pandas()`.
            schema: what may stand in it, docs/own-data.md: a file, or its content.
            sources: as `load_config` takes them.
            overrides: as `load_config` takes them: `seed=3`.

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


def notes(assembly: Assembly) -> list[str]:
    """What became of cells that a schema does not foresee."""
    return list(assembly.dataset.notes) if isinstance(assembly.dataset, Table) else []
