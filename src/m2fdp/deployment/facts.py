"""The facts that a plan of real processes rests on, as the nodes' file has them, and what a tree of
them needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from m2fdp.core.algorithms import Plan, build_plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.experiment import facts as a
from m2fdp.core.experiment.checks import check_config
from m2fdp.core.experiment.facts import Feature, always, refuse
from m2fdp.core.experiment.request import Request
from m2fdp.core.files import shown
from m2fdp.given.yaml_files import read_block
from m2fdp.tables.schema import Schema


@dataclass(frozen=True)
class Facts:
    """What is known of the nodes in public."""

    addresses: Mapping[str, str]  # HOST:PORT of each server, where its children reach it
    records: Mapping[str, int]  # of each device, how many to train on
    shape: tuple[int, int, int]  # (C, H, W) of an image
    classes: int
    schema: Mapping[str, Any] | None = None  # of tables, whose rows become records by it


def read_facts(path: Path, schema: Schema | None = None) -> Facts:
    """The facts in the nodes' file."""
    return facts_of(f"--nodes: {shown(path)}", read_block(path), schema)


def facts_of(place: str, content: Mapping[str, Any], schema: Schema | None = None) -> Facts:
    """Servers with their addresses, devices with their numbers of records, and, unless a schema
    says it, the images' shape and how many classes there are; `place` is where they stand."""
    names: tuple[str, ...] = ("servers", "devices", "shape", "classes")
    if schema is not None:
        names, (height, width, channels) = names[:2], schema.record_shape
        given = {"shape": (channels, height, width), "classes": len(schema.classes)}
    for name in {*content, *names}:
        if name not in names or name not in content:
            problem = f"are the keys; valid: {', '.join(names)}"
            raise InputError(place, among(name, sorted(content)), problem)
    content = content if schema is None else {**content, **given}
    try:
        addresses = {str(name): str(value) for name, value in content["servers"].items()}
        records = {str(name): int(value) for name, value in content["devices"].items()}
        channels, height, width = map(int, content["shape"])
        classes = int(content["classes"])
    except (AttributeError, TypeError, ValueError):
        problem = "needs servers: {NAME: HOST:PORT}, devices: {NAME: records}, shape: [C, H, W]"
        raise InputError(place, "(its values)", problem) from None
    for name, address in addresses.items():
        if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit():
            raise InputError(f"{place}: servers.{name}", address, "is no HOST:PORT")
    by = None if schema is None else schema.model_dump(mode="json")
    return Facts(addresses, records, (channels, height, width), classes, by)


def check_deployment(config: Config) -> Plan:
    """Refuse, by an `InputError`, what can be found wrong with a run of real processes without
    looking at data."""
    refuse(DEPLOYED, Request(config, build_plan(config)))
    return check_config(config, frozenset({"deployment"}))


def _has_sums(run: Request) -> bool:
    return bool(run.network.sums.layers)


# fmt: off
_MASKED_SUMS = a.where("sums that no node makes in clear", "secure_aggregation.protocol", "masks")
_READ_BY_PARENTS = a.where("servers that read what they add up", "secure_aggregation.decode",
    "parent")
DEPLOYED = (
    Feature("a tree of nodes (m2fdp plan)", always,
        (a.WHOLE_MODELS, a.ADDED_STEPS, a.NOT_BY_CHANCE, a.NOT_DRAWN, a.PLAIN_MEANS, a.STEPS_APART,
         a.FIXED_SERVERS, a.KNOWN_ROUNDS, a.HELD_BY_CLOUD, a.ON_PROCESSORS, a.OF_CLASSES)),
    Feature("a local aggregation of nodes, which keep one model,",
        lambda run: bool(run.plan.schedule.local_aggregation), (a.PULL_TO_RECEIVED,)),
    Feature("a sum of nodes", _has_sums, (_MASKED_SUMS, _READ_BY_PARENTS, a.NOBODY_SILENT)),
    Feature("a sum of nodes, which mask models,", _has_sums, (a.NOISE_AFTER_STEPS,), "[]",
        "secure_aggregation.layers"),
)
