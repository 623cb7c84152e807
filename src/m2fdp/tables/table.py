"""A table as a data set: who is a client, what is tested on, what a row becomes."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2fdp.core.config import DatasetConfig
from m2fdp.core.data.dataset import Dataset, tenths
from m2fdp.core.data.partitioners import Names, stratified_position
from m2fdp.core.errors import InputError, did_you_mean
from m2fdp.core.formatting import counted, some_of
from m2fdp.core.streams import generator
from m2fdp.given.edges import by_number
from m2fdp.tables.encoding import Encoded, Fault, added, check, encode, lacking
from m2fdp.tables.frames import CATALOG, files_of, folder_of, line_of, read_parts
from m2fdp.tables.persons import Persons
from m2fdp.tables.pictures import TEST, TRAIN
from m2fdp.tables.regression import MEASURES
from m2fdp.tables.schema import Schema, schema_of


@dataclass(frozen=True, eq=False)
class Table(Dataset):
    """A data set that a schema has made of a table.

    Attributes:
        schema: the table's schema.
        groups: (N, tiers), the servers above each record's client, the lowest first.
    """

    schema: Schema | None = None
    groups: np.ndarray | None = None

    @property
    def edges(self) -> list[tuple[str, str]]:
        """The tree of clients and groups, as pairs of parent and child.

        Raises:
            InputError: a client or server has two servers above it.
        """
        if self.clients is None:
            return []
        return tree_of([self.clients, *([] if self.groups is None else self.groups.T)])


def tree_of(columns: Sequence[Collection[Any]]) -> list[tuple[str, str]]:
    """Pairs of parent and child, from what rows say of each tier's node, the lowest tier first.

    Raises:
        InputError: a node has two above it.
    """
    above = [*columns[1:], ["cloud"] * len(columns[0])]
    parent_of: dict[str, str] = {}
    for child, parent in zip(columns, above, strict=True):
        for one, other in sorted(set(zip(map(str, child), map(str, parent), strict=True))):
            if parent_of.setdefault(one, other) != other:
                both = f"{parent_of[one]} and {other}"
                raise InputError("groups", one, f"is below both {both}; valid: one of them")
    return [(parent, child) for child, parent in parent_of.items()]


def read_table(config: DatasetConfig, unpack_root: Path, seed: int = 0) -> Dataset:
    """The table `dataset.root` by `dataset.schema`; see `table_of`.

    Raises:
        InputError: a file is missing or no table, or its rows break the schema.
    """
    schema = schema_of(config)
    assert schema is not None  # this reads tables
    parts, split, faults = list[Encoded](), list[np.ndarray](), list[Fault]()
    for of, file in files_of(config.root).items():
        before = len(parts)
        faults += _encoded(parts, "dataset.root", file, schema, unpack_root)
        split += [np.full(len(each.labels), of) for each in parts[before:] if of is not None]
    told = np.concatenate(split) if split else None
    table = assembled(parts, schema, seed, added(faults), config.root, told)
    if not config.root.startswith(CATALOG):
        return table
    # A query, or code of the user's, may stand behind it, and nothing shows what it looks at.
    doubt = f"{config.root} makes of each row what it says, and nothing of it of another's"
    return replace(table, doubt=", and ".join(filter(None, [table.doubt, doubt])))


def _encoded(
    parts: list[Encoded], key: str, file: str, schema: Schema, store: Path | None = None
) -> list[Fault]:
    """Add the rows of a file to those of others; the faults that nobody is refused for."""
    refuse, before = partial(InputError, key, file), len(parts)
    for frame in read_parts(key, file):
        if problem := lacking(frame.columns, schema):
            raise refuse(problem)
        parts.append(encode(frame, schema, folder_of(file), store))
    faults = added(fault for part in parts[before:] for fault in part.faults)
    check(faults, schema, refuse, partial(line_of, file))
    return faults


def table_of(frame: pd.DataFrame, schema: Schema, seed: int) -> Table:
    """A DataFrame as a data set.

    Raises:
        InputError: rows break the schema.
    """
    refuse = partial(InputError, "frame", "frame")
    if problem := lacking(frame.columns, schema):
        raise refuse(problem)
    numbered = frame.rename(columns=lambda column: str(column).strip()).reset_index(drop=True)
    if numbered.empty:
        raise refuse("has no row")
    encoded = encode(numbered, schema)
    check(encoded.faults, schema, refuse, "row {}".format)
    return assembled([encoded], schema, seed, encoded.faults, "frame")


def own_rows(
    key: str, file: str, schema: Schema, test: bool
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """All rows of one client's table, to train on or to test on: images (N, H, W, C) and labels
    (N,), as `assembled` has them, and lines to be told.

    Args:
        key: the option that names the file, for errors.

    Raises:
        InputError: no such file, no table, an entry of a catalog, or rows that break the schema.
    """
    if file.startswith(CATALOG):
        raise InputError(key, file, "may be anybody's code, unknown to the others; give a file")
    schema, parts = schema.of_one, list[Encoded]()
    notes = [fault.note for fault in _encoded(parts, key, file, schema)]
    inputs = np.concatenate([each.inputs for each in parts])
    labels = np.concatenate([each.labels for each in parts])
    if (record := schema.record) is None:
        return inputs, labels, notes
    named = np.concatenate([part.named[record.column] for part in parts])
    persons = Persons.of(named, record, labels, None, None, partial(InputError, key, file))
    rows = np.flatnonzero(persons.kept)
    of_rows = inputs[rows], labels[rows], rows, 0 if test else len(rows)
    images, labels, *_ = persons.bags(*of_rows, len(schema.classes) or 1)
    return images, labels, [*notes, persons.note]


def table_by(schema: Schema, arrays: Dataset) -> Table:
    """Records that a schema has made of rows, as the data set that they are."""
    return Table(**vars(arrays) | {"known_scale": True, "doubt": _doubt(schema), "schema": schema})


def assembled(
    parts: list[Encoded],
    schema: Schema,
    seed: int,
    faults: Iterable[Fault],
    name: str,
    split: np.ndarray | None = None,
) -> Table:
    """The data set of a table's encoded rows, training records first.

    Args:
        parts: the rows; emptied, since there is hardly memory for a large table twice.
        faults: those that nobody is refused for.
        split: what each row is for, if its file says so: (n,).
    """
    refuse = partial(InputError, "dataset.root", name)
    labels = np.concatenate([part.labels for part in parts])

    def said(column: str) -> np.ndarray:
        return np.concatenate([part.named[column] for part in parts])

    clients = said(schema.client.column) if schema.client else None
    split = said(schema.split) if split is None and schema.split else split
    of_groups = [said(group.column) for group in schema.groups]
    notes = [fault.note for fault in faults]
    of_records, unit, persons = (labels, clients, split), "rows", None
    if schema.record is not None:
        named = said(schema.record.column)
        persons = Persons.of(named, schema.record, labels, clients, split, refuse)
        of_records, unit = (persons.labels, persons.clients, persons.split), "persons"
        notes.append(persons.note)
    of_labels, of_clients, _ = of_records
    kept = np.ones(len(of_labels), dtype=bool)
    if of_clients is not None:
        places, names = pd.factorize(of_clients, sort=True)
        sizes = np.bincount(places)
        largest = np.argsort(-sizes, kind="stable")
        chosen = np.isin(np.arange(len(sizes)), largest[: schema.max_clients])
        kept = (chosen & (sizes >= schema.min_records))[places]
        if left := sorted(set(of_clients[~kept])):
            few = f"{counted(len(left), 'client')} with fewer than {schema.min_records} {unit}"
            few += f", or beyond {schema.max_clients}" * (schema.max_clients is not None)
            notes.append(f"{few} left out: {some_of(left)}")
    is_test = _tested(*of_records, schema, seed, refuse)
    if persons is not None:
        kept, is_test = kept[persons.number] & persons.kept, is_test[persons.number]
    order = np.flatnonzero(kept)[np.argsort(is_test[kept], kind="stable")]
    n_train = int((~is_test[kept]).sum())
    trained = set(labels[order[:n_train]].tolist())
    if absent := [name for c, name in enumerate(schema.classes) if c not in trained]:
        raise refuse(f"has no training record of the class {absent[0]}; valid: one of each class")
    if clients is not None:
        tested_only = sorted(set(clients[order[n_train:]]) - set(clients[order[:n_train]]))
        if tested_only:
            raise refuse(f"the client {tested_only[0]} has test records only; valid: both")
    place = np.full(len(labels), -1)
    place[order] = np.arange(len(order))
    inputs = np.empty((len(order), *schema.shape), dtype=parts[0].inputs.dtype)
    for end in np.cumsum([len(part.labels) for part in parts]).tolist():
        part = parts.pop(0).inputs
        to = place[end - len(part) : end]
        inputs[to[to >= 0]] = part[to >= 0]
    labels, who, n_classes = labels[order], order, len(schema.classes) or 1
    if persons is not None:
        of_rows = inputs, labels, order, n_train
        inputs, labels, order, n_train = persons.bags(*of_rows, n_classes)
        who = persons.number[order]
    return replace(
        table_by(schema, Dataset("table", inputs, labels, n_train, n_classes)),
        clients=None if clients is None else names.astype(str)[places[who]],
        notes=tuple(notes),
        label_range=schema.label.range,
        metrics=MEASURES if schema.label.range else (),
        groups=np.stack(of_groups, axis=1)[order] if of_groups else None,
    )


def holders(clients: np.ndarray | None, names: Names) -> np.ndarray:
    """The numbers (n,) of the devices of the names that records have. Where nobody has named the
    devices, the clients are these in the order of their names.

    Raises:
        InputError: there are none, a name is no device's, or there are more or fewer than devices.
    """
    refuse = partial(InputError, "partition.scheme", "column")
    if clients is None:
        raise refuse("the data set names no clients; valid: another scheme, or a table's `client`")
    if not names.given:
        known = sorted(set(clients.tolist()), key=by_number)
        if (n := len(known)) != len(names.devices):
            found = f"records are of {counted(n, 'client')}, and topology has"
            valid = (
                f"valid: topology.fanouts={n} below the cloud, or topology.edges with their names"
            )
            raise refuse(f"{found} {counted(len(names.devices), 'device')}; {valid}")
        names = replace(names, devices=tuple(known))
    device = names.numbers(clients.tolist(), by_name_alone=True)
    if (device < 0).any():
        unknown = clients[int(np.argmax(device < 0))]
        valid = f"valid: {some_of(names.devices)}{did_you_mean(unknown, names.devices)}"
        raise refuse(f"{unknown} is no device of topology.edges; {valid}")
    return device


def strata_names(dataset: Dataset) -> list[str]:
    """What figures call the classes, or the tenths of the range of labels that are numbers."""
    if dataset.label_range is not None:
        ends = np.linspace(*dataset.label_range, dataset.n_strata + 1)
        return [f"{low:g} to {high:g}" for low, high in pairwise(ends)]
    if isinstance(dataset, Table) and dataset.schema is not None:
        return list(dataset.schema.classes)
    return [str(label) for label in range(dataset.n_classes)]


def _doubt(schema: Schema) -> str:
    """What epsilon rests on until a person has confirmed all of a schema; empty from then on."""
    entries = [key.removeprefix("columns.") for key in schema.unconfirmed]
    said = f"what dataset.schema says of {some_of(entries)} (`confirmed: false` stands there)"
    return f"public knowledge, and no record, has given {said}" if entries else ""


def _tested(
    labels: np.ndarray,
    clients: np.ndarray | None,
    split: np.ndarray | None,
    schema: Schema,
    seed: int,
    refuse: partial[InputError],
) -> np.ndarray:
    """Whether each row is a test record: as `split` says, or a share of each client's classes."""
    if split is None:
        groups = np.zeros(len(labels), dtype=np.int64)
        if clients is not None:
            groups = pd.factorize(clients, sort=True)[0]
        strata = labels if schema.label.range is None else tenths(labels)
        position = stratified_position(groups, strata, generator(seed, "table-test"))
        return position < np.round(schema.test_fraction * np.bincount(groups)[groups])
    spelled = np.array([str(value).lower() for value in split])
    strange = sorted(set(spelled) - {*TRAIN, *TEST})
    if strange:
        raise refuse(f"its split has {strange[0]!r}; valid: {some_of([*TRAIN, *TEST])}")
    is_test = np.isin(spelled, TEST)
    if is_test.all() or not is_test.any():
        raise refuse(f"its split is {spelled[0]} everywhere; valid: train and test")
    return is_test
