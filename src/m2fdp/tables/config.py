"""The key that only tables read."""

import warnings

from m2fdp.core.blocks import Block, Name, key

# pydantic's models had a method of that name once.
warnings.filterwarnings("ignore", message='Field name "schema"', category=UserWarning)


class TableKeys(Block):
    """What a table may hold."""

    schema: Name | None = key(None, since="0.22.0", read_by="dataset.name: table")  # type: ignore[assignment]
    """The file that says what may stand in the table, docs/own-data.md; `m2fdp data describe TABLE`
    writes it."""
