"""From one file to a federation: an authority, a plan, and a folder a node to hand out."""

import math
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.files import replacing, shown
from m2fdp.deployment import keys
from m2fdp.deployment.facts import Facts, check_deployment, facts_of
from m2fdp.deployment.links import Tell
from m2fdp.given.loading import load_config
from m2fdp.given.yaml_files import read_block
from m2fdp.tables.schema import schema_of

_KEYS = ("tree", "servers", "shape", "classes", "parameters")


def read_federation(path: Path) -> tuple[Config, Facts]:
    """The configuration and the facts of a file: `tree` has the cloud's name, its children's and so
    on, with numbers of records at devices; `servers` each one's HOST:PORT; `shape` and `classes`
    what a schema does not say; `parameters` the run's keys. An `InputError` names file and key."""
    try:
        given = {str(key): value for key, value in read_block(path).items()}
        for key in (*given, *_KEYS[:2]):
            if key not in _KEYS or key not in given:
                wrong = "unknown key" if key in given else "is missing"
                raise InputError(key, given.get(key), f"{wrong}; valid: {among(key, _KEYS)}")
        tree, parameters = given.pop("tree"), given.pop("parameters", None) or {}
        if not isinstance(tree, dict) or len(tree) != 1:
            raise InputError("tree", tree, "valid: one cloud, and its children")
        below = list(_below("tree", *tree.popitem()))
        listed = {"topology.edges": [[parent, name] for parent, name, _ in below]}
        config = load_config(parameters, listed)
        for name in (tree_name for edge in below for tree_name in edge[:2]):
            keys.check_name(name)
        records = {name: number for _, name, number in below if number}
        facts = facts_of("facts", given | {"devices": records}, schema_of(config.dataset))
        servers = dict.fromkeys(parent for parent, _, _ in below)
        for name in sorted(servers.keys() ^ facts.addresses.keys()):
            problem = "has no HOST:PORT" if name in servers else "is no server"
            raise InputError("servers", name, f"{problem}; the tree's are {among(name, servers)}")
        check_deployment(config)
    except InputError as error:
        raise InputError(f"{shown(path)}: {error.key}", error.value, error.remedy) from None
    return config, facts


def _below(at: str, parent: Any, below: Any) -> Iterator[tuple[str, str, int]]:
    """Of all nodes below a parent: parent, name, number of records (0 = a server)."""
    at = f"{at}.{parent}"
    if not isinstance(below, dict) or not below:
        valid = "valid: names of children, with a number of records, 1 or more, at a device's"
        raise InputError(at, below, valid)
    for name, inner in below.items():
        is_device = type(inner) is int and inner > 0
        yield str(parent), str(name), inner if is_device else 0
        if not is_device:
            yield from _below(at, name, inner)


def hand_out(path: Path, folder: Path, with_keys: bool, tell: Tell) -> None:
    """Make, in a folder that is not there, the authority, the plan, and what each node needs in
    `nodes/NAME`. Without keys each node makes its own."""
    if folder.exists():
        raise InputError("-o", shown(folder), "is there; name another folder, or move it away")
    config, facts = read_federation(path)
    from m2fdp.deployment.plan import make_plan, recompute  # imports torch

    made = make_plan(config, facts)
    recomputed, authority = recompute(made), folder / "authority"
    devices, (cloud, *_) = recomputed.network.tree.names[-1], recomputed.network.tree.names[0]
    keys.make_authority(authority)
    made.save(folder / "plan.json", authority)
    for name in (*facts.addresses, *devices):
        own, port = folder / "nodes" / name, facts.addresses.get(name, "").rpartition(":")[2]
        options = "--data held-out.npz --out ." if name == cloud else ""
        if name in facts.records:
            epsilon = float(made.content["epsilon"][name])
            budget = epsilon if math.isinf(epsilon) else math.ceil(1000 * epsilon) / 1000
            trusts = recomputed.readers_in_clear(devices.index(name))
            options = f"--data own.npz --budget {budget}" + "".join(
                f" --trusts {s}" for s in trusts
            )
        options += " --rehearsal" if made.release is not None else ""
        values = {
            "name": name,
            "command": f"{'serve' if port else 'join'} plan.json --as {name} --keys keys",
            "options": options,
            "unit_options": options.replace("--out .", f"--out /var/lib/m2fdp/{name}"),
            "listening": f"--listen 0.0.0.0:{port}" if port else "",
            "ports": f'"{port}:{port}"' if port else "",
            "version": metadata.version("m2fdp"),
        }
        for template in resources.files("m2fdp.deployment").joinpath("handed_out").iterdir():
            with replacing(own / template.name) as file:
                text = Template(template.read_text(encoding="utf-8")).substitute(values)
                file.write_text(text, encoding="utf-8")
        (own / "start.sh").chmod(0o755)
        made.save(own / "plan.json", authority)
        keys.copy_authority(authority, own / "keys")
        if with_keys:
            keys.sign(keys.request(name, own / "keys"), authority)
    for line in (*made.told(), f"{folder}: nodes/ to hand out, and authority/ to keep to yourself"):
        tell(line)
