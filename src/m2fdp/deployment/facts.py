"""The facts that a plan of real processes rests on, as the nodes' file has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from m2fdp.core.errors import InputError, among
from m2fdp.core.files import shown
from m2fdp.core.yaml_files import read_block


@dataclass(frozen=True)
class Facts:
    """What is known of the nodes in public.

    Attributes:
        addresses: HOST:PORT of each server, where its children reach it.
        records: how many training records each device has.
        shape: (C, H, W) of an image.
        classes: how many there are.
    """

    addresses: Mapping[str, str]
    records: Mapping[str, int]
    shape: tuple[int, int, int]
    classes: int


def read_facts(path: Path) -> Facts:
    """The nodes' file: servers with their addresses, devices with their numbers of records, the
    images' shape and how many classes there are.

    Raises:
        InputError: it says something else.
    """
    content, names = read_block(path), ("servers", "devices", "shape", "classes")
    for name in {*content, *names}:
        if name not in names or name not in content:
            problem = f"has the keys {among(name, sorted(content))}; valid: {', '.join(names)}"
            raise InputError("--nodes", shown(path), problem)
    try:
        addresses = {str(name): str(value) for name, value in content["servers"].items()}
        records = {str(name): int(value) for name, value in content["devices"].items()}
        channels, height, width = map(int, content["shape"])
        classes = int(content["classes"])
    except (AttributeError, TypeError, ValueError):
        problem = "needs servers: {NAME: HOST:PORT}, devices: {NAME: records}, shape: [C, H, W]"
        raise InputError("--nodes", shown(path), problem) from None
    for name, address in addresses.items():
        if not address.rpartition(":")[0] or not address.rpartition(":")[2].isdigit():
            raise InputError(f"--nodes: servers.{name}", address, "is no HOST:PORT")
    return Facts(addresses, records, (channels, height, width), classes)
