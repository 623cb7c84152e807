"""From one file to a federation: an authority, a plan, and a folder a node to hand out."""

import math
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.files import replacing, shown
from m2fdp.deployment import keys
from m2fdp.deployment.facts import Facts, check_deployment
from m2fdp.deployment.links import Tell
from m2fdp.given.loading import load_config, parse_block
from m2fdp.given.yaml_files import read_block

Count = Annotated[int, Field(ge=1)]
Address = Annotated[str, StringConstraints(pattern=r"^[^\s:]+:[0-9]+$")]
_OF_TREE = ("topology.fanouts", "topology.edges")


class Federation(BaseModel):
    """What a file of `m2fdp init` holds."""

    model_config = ConfigDict(extra="forbid")

    tree: dict[str, Any]
    """The cloud's name, with its children's names, and so on; at each device's, its number of
    training records."""
    hosts: dict[str, Address]
    """HOST:PORT of each server, where its children reach it."""
    shape: tuple[Count, Count, Count]
    """(C, H, W) of an image."""
    classes: Count
    parameters: dict[str, Any] = {}
    """Keys of the run; they may be dotted."""


def read_federation(path: Path) -> tuple[Config, Facts]:
    """The configuration and the facts of such a file; an `InputError` names file, key and value."""
    try:
        given = parse_block(Federation, {str(k): v for k, v in read_block(path).items()})
        edges, records = list[tuple[str, str]](), dict[str, int]()
        _walk("tree", given.tree, None, edges, records)
        servers = dict.fromkeys(parent for parent, _ in edges)
        for name in (*servers, *records):
            keys.check_name(name)
            if name == keys.AUTHORITY:
                raise InputError("tree", name, "is the authority's name; valid: another")
        for name in sorted(servers.keys() ^ given.hosts.keys()):
            problem = "has no HOST:PORT" if name in servers else "is no server"
            problem += f"; the tree's servers are {among(name, servers)}"
            raise InputError("hosts", name, problem)
        for key in _OF_TREE:
            if key in given.parameters or key[9:] in given.parameters.get("topology", {}):
                raise InputError(f"parameters.{key}", "(given)", "is what `tree` says; leave it")
        config = load_config({"topology.edges": list(map(list, edges))}, given.parameters)
        check_deployment(config)
    except InputError as error:
        raise InputError(f"{shown(path)}: {error.key}", error.value, error.remedy) from None
    return config, Facts(given.hosts, records, given.shape, given.classes)


def _walk(
    at: str, below: Any, parent: str | None, edges: list[tuple[str, str]], records: dict[str, int]
) -> None:
    """Collect the edges below a parent, and what devices have."""
    if not isinstance(below, dict) or not below or (parent is None and len(below) > 1):
        valid = "valid: the children's names, with numbers of records at devices'"
        raise InputError(at, below, valid if parent else "valid: one cloud, and its children")
    for name, inner in ((str(name), inner) for name, inner in below.items()):
        if parent is not None:
            edges.append((parent, name))
        if parent is None or isinstance(inner, dict):
            _walk(f"{at}.{name}", inner, name, edges, records)
        elif isinstance(inner, bool) or not isinstance(inner, int) or inner < 1:
            raise InputError(
                f"{at}.{name}", inner, "valid: how many records a device has, 1 or more"
            )
        else:
            records[name] = inner


def hand_out(path: Path, folder: Path, with_keys: bool, tell: Tell) -> None:
    """Make, in a folder that is not there, the authority, the plan, and what each node needs in
    `nodes/NAME`. Without keys each node makes its own."""
    if folder.exists():
        raise InputError("-o", shown(folder), "is there; name another folder, or move it away")
    config, facts = read_federation(path)
    from m2fdp.deployment.plan import make_plan, recompute  # imports torch

    made = make_plan(config, facts)
    recomputed, authority = recompute(made), folder / "authority"
    keys.make_authority(authority)
    made.save(folder / "plan.json", authority)
    for line in made.told():
        tell(line)
    for layer, names in enumerate(recomputed.network.tree.names):
        for index, name in enumerate(names):
            own, options, verb = folder / "nodes" / name, "", "serve"
            if layer == 0:
                options = "--data held-out.npz --out ."
            elif name in facts.records:
                epsilon, verb = float(made.content["epsilon"][name]), "join"
                budget = epsilon if math.isinf(epsilon) else math.ceil(1000 * epsilon) / 1000
                options = f"--data own.npz --budget {budget:g}"
                options += "".join(f" --trusts {s}" for s in recomputed.readers_in_clear(index))
            _hand_out_one(own, name, verb, options, facts, made.release is not None)
            if with_keys:
                keys.sign(keys.request(name, own / "keys"), authority)
            else:
                keys.copy_authority(authority, own / "keys")
            made.save(own / "plan.json", authority)
    tell(f"{folder}: nodes/ to hand out, and authority/ to keep to yourself")


def _hand_out_one(
    own: Path, name: str, verb: str, options: str, facts: Facts, rehearsal: bool
) -> None:
    """The command line of a node as a script, a unit of systemd, and a container."""
    options += " --rehearsal" if rehearsal else ""
    port = facts.addresses.get(name, "").rpartition(":")[2]
    listening = f" --listen 0.0.0.0:{port}" if port else ""
    # A unit's folder is not written to.
    of_unit = options.replace("--out .", f"--out /var/lib/m2fdp/{name}")
    values = {
        "name": name,
        "command": f"{verb} plan.json --as {name}",
        "options": options,
        "unit_options": of_unit,
        "compose_options": f"{options}{listening}".strip(),
        "service": name.replace(".", "-"),
        "ports": f'"{port}:{port}"' if port else "",
        "version": metadata.version("m2fdp"),
    }
    for template in resources.files("m2fdp.deployment").joinpath("handed_out").iterdir():
        lines = Template(template.read_text(encoding="utf-8")).substitute(values).splitlines()
        with replacing(own / template.name) as unfinished:
            text = "".join(f"{line.rstrip()}\n" for line in lines)
            unfinished.write_text(text, encoding="utf-8")
    (own / "start.sh").chmod(0o755)
