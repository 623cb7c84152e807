"""The plan of a run of real processes: public, signed, and recomputed by whoever takes part.

It holds facts (configuration, tree, records of each device, addresses) and what follows from them
(noise of each node, epsilon of each device). A node believes the facts about others, checks those
about itself, computes what follows anew, and refuses less noise than it has computed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from m2fdp.core.config import PIXELS, Config
from m2fdp.core.data.dataset import Dataset
from m2fdp.core.data.manifest import COLUMNS
from m2fdp.core.data.partitioners import CLOUD
from m2fdp.core.errors import InputError, among
from m2fdp.core.experiment.parts import records_of
from m2fdp.core.experiment.results import Calibration
from m2fdp.core.formatting import for_json
from m2fdp.core.privacy.ledger import Ledger, behind_own_heads
from m2fdp.core.topology.network import Network
from m2fdp.deployment import keys
from m2fdp.deployment.composed import continuing
from m2fdp.deployment.config import DeploymentConfig
from m2fdp.deployment.facts import Facts, check_deployment
from m2fdp.experiment import Experiment
from m2fdp.features.run import refuse_records
from m2fdp.given.edges import edges_of
from m2fdp.given.loading import parse_block, parse_config
from m2fdp.given.retired import less_retired
from m2fdp.secure_aggregation.model_sums import group_terms, model_spread
from m2fdp.sources.arrays import read_records
from m2fdp.tables.schema import Schema
from m2fdp.tables.table import own_rows, table_by

# Images (N, H, W, C) and labels (N,).
Records = tuple[np.ndarray, np.ndarray]
# Whoever a device sends to, and who may read it next, counts whatever `threat` says.
_ALWAYS = frozenset({"servers", "cloud"})


@dataclass(frozen=True)
class Deviations:
    """The noise that one node adds, in the unit of the mechanism's (`Noise`)."""

    step: float = 0.0  # at every local step, as the head of a lock-step group
    message: float = 0.0  # to what it sends up at a global aggregation
    local_message: float = 0.0  # the same at a local one
    # To what it hands down after a local aggregation; the cloud, at a round's end.
    broadcast: float = 0.0

    def sent(self, top: int | None) -> float:
        """What is added to what it sends when models travel up to a layer."""
        return self.local_message if top else self.message


@dataclass(frozen=True, eq=False)
class PublicPlan:
    """The plan as it is signed: `content` is plain JSON."""

    content: Mapping[str, Any]

    @cached_property
    def signed_bytes(self) -> bytes:
        return keys.signed_bytes(self.content)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256, which every question names."""
        return sha256(self.signed_bytes).digest()

    @property
    def facts(self) -> Facts:
        facts = dict(self.content["facts"])
        return Facts(**facts | {"shape": tuple(facts["shape"])})

    @property
    def release(self) -> bytes | None:
        """What seeded noise is keyed by in a rehearsal, else None."""
        text = self.content["release"]
        return None if text is None else bytes.fromhex(text)

    @property
    def continues(self) -> tuple["PublicPlan", int] | None:
        """The plan that it continues, and after which round; None = it begins a run."""
        before = self.content.get("continues")
        return None if before is None else (PublicPlan(before["plan"]), before["round"])

    def deviations(self, node: str) -> Deviations:
        return Deviations(**self.content["noise"].get(node, {}))

    def told(self) -> Iterator[str]:
        """Lines on who adds how much noise, and what every device will have spent."""
        yield f"plan {self.digest.hex()[:16]}, {self.content['rounds']} rounds"
        for name, noise in self.content["noise"].items():
            added = ", ".join(f"{kind} {value:.4g}" for kind, value in noise.items() if value)
            yield f"  {name} adds noise: {added}"
        for name, epsilon in self.content["epsilon"].items():
            yield f"  {name}: epsilon {float(epsilon):.4g}"
        for name, epsilon in self.content.get("retired", {}).items():
            yield f"  {name}: retired, epsilon {float(epsilon):.4g}"
        if self.continues is not None:
            (before, round_), whole = self.continues, "epsilon is of both"
            yield f"  continues plan {before.digest.hex()[:16]} after round {round_}; {whole}"

    def save(self, path: Path, authority: Path) -> None:
        """Write it with the authority's signature, whose folder it is."""
        keys.write_signed("plan", path, self.content, authority)


def load_plan(path: Path, authority: bytes) -> PublicPlan:
    """A plan that an authority of that certificate has signed."""
    return PublicPlan(keys.read_signed("plan", path, authority))


@dataclass(frozen=True, eq=False)
class Recomputed:
    """A run as everybody computes it from a plan's facts, over records of which nothing is known
    but how many there are."""

    experiment: Experiment
    facts: Facts

    @property
    def network(self) -> Network:
        return self.experiment.run_plan.networks[0]

    @property
    def settings(self) -> DeploymentConfig:
        return self.experiment.config.deployment

    @property
    def ledger(self) -> Ledger:
        return self.experiment.calibration.mechanism.ledger

    @property
    def rounds(self) -> int:
        return self.experiment.calibration.affordable_rounds

    @property
    def counted(self) -> frozenset[str]:
        """The kinds of observers that a device's epsilon is about: those whom `threat` distrusts,
        and all servers that are not trusted."""
        return self.ledger.distrusted | _ALWAYS

    def epsilon(self, device: int, rounds: int) -> float:
        """Of a device's records, after some rounds: the largest of all observers that count."""
        kinds, lines = self.counted, self.ledger.lines
        lines = tuple(n for n in lines if device in n.position.members and n.kind in kinds)
        return replace(self.ledger, lines=lines, distrusted=kinds).verified(rounds)

    def noise(self) -> dict[str, Deviations]:
        """The noise of every node that adds some."""
        mechanism, found = self.experiment.calibration.mechanism, {}
        noise, heads = mechanism.noise, mechanism.lock_step.nodes
        of_head = {tuple(head): step for head, step in zip(heads, noise.steps, strict=True)}
        for layer, names in enumerate(self.network.tree.names):
            for index, name in enumerate(names):
                step = float(of_head.get((layer, index), 0.0))
                message = float(noise.messages[layer][index])
                own = Deviations(step, broadcast=message)
                if layer > 0:
                    hands_down = layer < len(noise.broadcasts)
                    below = float(noise.broadcasts[layer][index]) if hands_down else 0.0
                    own = Deviations(step, message, float(noise.sent(1)[layer][index]), below)
                if own != Deviations():
                    found[name] = own
        return found

    def readers_in_clear(self, device: int) -> tuple[str, ...]:
        """Servers that are sent what a device's records give, before noise is added to it."""
        tree, mechanism = self.network.tree, self.experiment.calibration.mechanism
        path = [int(nodes[device]) for nodes in tree.ancestors]
        readers: list[str] = []
        for layer in range(tree.depth, 0, -1):
            adds = mechanism.noise.heads[layer][path[layer]] or all(
                mechanism.noise.sent(top)[layer][path[layer]] for top in range(layer)
            )
            if adds:
                return tuple(readers)
            readers.append(tree.names[layer - 1][path[layer - 1]])
        return tuple(readers)


def make_plan(
    config: Config,
    facts: Facts,
    release: bytes | None = None,
    continues: Mapping[str, Any] | None = None,
    retired: Mapping[str, Any] | None = None,
) -> PublicPlan:
    """The plan of a run. `release`, or else the facts, key a rehearsal's noise. `continues` has the
    content of a `plan`, and a `round`; `retired` the epsilon of devices that have left.
    `InputError`: a tree of processes can't do it, or nodes are not the tree's."""
    plan = check_deployment(config)
    tree = plan.network.tree
    for name in (name for of_layer in tree.names for name in of_layer):
        keys.check_name(name)
    servers = [name for of_layer in tree.names[:-1] for name in of_layer]
    for key, known, given in (
        ("servers", servers, facts.addresses),
        ("devices", tree.names[-1], facts.records),
    ):
        if wrong := set(known) ^ set(given):
            name = min(wrong)
            problem = f"is {'not given' if name in known else 'no node'}; the tree's {key} are "
            raise InputError(f"--nodes: {key}", name, problem + among(name, sorted(known)))
    for name, records in facts.records.items():
        if records < 1:
            raise InputError(f"--nodes: devices.{name}", records, "a device has records")
    recomputed = _recompute(config, facts, continues)
    edges = config.topology.edges and [list(edge) for edge in edges_of(config.topology.edges)]
    content: dict[str, Any] = {
        "configuration": config.model_dump(mode="json"),
        "edges": edges,
        "facts": asdict(facts),
        "rounds": recomputed.rounds,
        "noise": {name: asdict(noise) for name, noise in recomputed.noise().items()},
        "epsilon": {
            name: for_json(recomputed.epsilon(device, recomputed.rounds))
            for device, name in enumerate(tree.names[-1])
        },
        "release": None,
    }
    if continues is not None:
        content |= {"continues": continues, "retired": retired}
    if config.deployment.rehearsal:
        content["release"] = (release or PublicPlan(content).digest).hex()
    return PublicPlan(json.loads(json.dumps(content)))


def recompute(plan: PublicPlan, held_out: Records | None = None) -> Recomputed:
    """The run of a plan, evaluated on the cloud's held-out records; an `InputError` where the plan
    promises more, or has less noise, than follows from its facts."""
    config = parse_config(less_retired(plan.content["configuration"]))
    if plan.content["edges"] is not None:
        topology = config.topology.model_copy(update={"edges": plan.content["edges"]})
        config = config.model_copy(update={"topology": topology})
    recomputed = _recompute(config, plan.facts, plan.content.get("continues"), held_out)
    for name, own in recomputed.noise().items():
        for kind, value in asdict(own).items():
            planned = getattr(plan.deviations(name), kind)
            if not planned >= value * (1 - ROUNDING):
                problem = f"is less noise than its facts ask for, {value:.6g}; refused"
                raise InputError(f"plan: noise.{name}.{kind}", planned, problem)
    for device, name in enumerate(recomputed.network.tree.names[-1]):
        planned = plan.content["epsilon"].get(name)
        value = recomputed.epsilon(device, recomputed.rounds)
        if planned is None or not value <= float(planned) * (1 + ROUNDING):
            problem = f"is less than follows from its facts, {value:.6g}; refused"
            raise InputError(f"plan: epsilon.{name}", planned, problem)
    return recomputed


def _recompute(
    config: Config,
    facts: Facts,
    continues: Mapping[str, Any] | None,
    held_out: Records | None = None,
) -> Recomputed:
    """The run, over training images that are all black."""
    plan = check_deployment(config)
    names = plan.network.tree.names[-1]
    sizes = [facts.records[name] for name in names]
    channels, height, width = facts.shape
    n_records = sum(sizes)
    images = np.zeros((n_records, height, width, channels), np.uint8)
    labels, n_held_out = np.arange(n_records) % facts.classes, 0
    if held_out is not None:
        _check_shape("--data", held_out, facts)
        n_held_out = len(held_out[1])
        images = np.concatenate([images.astype(held_out[0].dtype), held_out[0]])
        labels = np.concatenate([labels, held_out[1]])
    dataset = _dataset(config, facts, images, labels, n_records)
    split = np.repeat(["train", config.training.evaluate_on], [n_records, n_held_out])
    devices = np.repeat([*names, str(CLOUD)], [*sizes, n_held_out])
    columns = dataset.name, np.arange(len(labels)), split, labels, devices
    manifest = pd.DataFrame(dict(zip(COLUMNS, columns, strict=True)))
    kind = experiment_of(config)
    if continues is not None:
        before = recompute(PublicPlan(continues["plan"]))
        kind = continuing(kind, before.ledger, before.network.tree.names[-1], continues["round"])
    experiment = kind(config, dataset, manifest, plan)
    _ = experiment.manifest  # reads the tree's file
    _check_grids(experiment)
    return Recomputed(experiment, facts)


def _check_grids(experiment: Experiment) -> None:
    """Sums that hide their terms have a grid for all rounds: the longest steps' is the coarsest."""
    network, mechanism = experiment.run_plan.networks[0], experiment.calibration.mechanism
    rounds = sorted(experiment.run_plan.rounds, key=lambda plan: plan.step_size)
    rates, n_parameters = experiment.sampling_rates, experiment.model.n_parameters
    for layer in sorted(network.sums.layers):
        of_node = network.tree.parents[layer - 1]
        for plan in {len(plan.layers): plan for plan in rounds}.values():
            spread = model_spread(network, mechanism, plan, rates, layer, n_parameters)
            for reader in range(network.tree.n_nodes(layer - 1)):
                members = np.flatnonzero(of_node == reader)
                group_terms(network, layer, members, spread, n_parameters, "plan")


def own_inputs(recomputed: Recomputed, device: int, records: Records) -> tuple[Tensor, Tensor]:
    """The model's inputs of a device's own images, (D, C, H, W), and their labels. An `InputError`
    refuses another number or shape than the plan's, images that features are fitted on, and floats
    whose scaling nobody has confirmed."""
    experiment, facts = recomputed.experiment, recomputed.facts
    _check_shape("--data", records, facts)
    name = recomputed.network.tree.names[-1][device]
    if len(records[1]) != facts.records[name]:
        problem = f"the plan says that {name} has {facts.records[name]}: its noise is made for them"
        raise InputError("--data", f"{len(records[1])} records", problem)
    own = _dataset(experiment.config, facts, *records, len(records[1]))
    if not own.scaled_by_constants and not experiment.config.dataset.confirmed:
        valid = "valid: uint8, or a plan with dataset.confirmed=true: a fixed range has scaled them"
        raise InputError("--data", "floats", f"may say by their scale what they hold; {valid}")
    if experiment.config.features.map != PIXELS:
        # The plan is made over images that are nobody's: only who has them can look.
        refuse_records(experiment.config.features.public, own)
    return records_of(experiment.inputs_of(own), np.arange(len(records[1])), "cpu")


def read_own(file: str, facts: Facts, tell: Callable[[str], object], test: bool) -> Records:
    """A node's own records of a file, to train or to test on. It holds arrays, or a table, of whose
    rows the plan's schema makes records; what becomes of cells beyond it is told."""
    if (schema := _schema(facts)) is None:
        return read_records("--data", file, facts.classes)
    images, labels, notes = own_rows("--data", file, schema, test)
    for note in notes:
        tell(note)
    return images, labels


def _schema(facts: Facts) -> Schema | None:
    content = facts.schema
    return None if content is None else parse_block(Schema, content, "plan: facts.schema")


def _dataset(
    config: Config, facts: Facts, images: np.ndarray, labels: np.ndarray, n_train: int
) -> Dataset:
    schema, name = _schema(facts), config.dataset.name
    arrays = Dataset(name, images, labels, n_train, facts.classes)
    return arrays if schema is None else table_by(schema, arrays)


def _check_shape(key: str, records: Records, facts: Facts) -> None:
    height, width, channels = records[0].shape[1:]
    if (channels, height, width) != facts.shape:
        valid = f"the plan's have (C, H, W) = {facts.shape}"
        raise InputError(key, f"images of (C, H, W) = {(channels, height, width)}", valid)


# Two machines may calibrate to numbers that differ by so much of them.
ROUNDING = 1e-6


class WithoutMissing(Experiment):
    """A run under `deployment.on_missing: skip`: nobody's line counts any noise but a head's own,
    whether a node has been missing or not. Its calibration is refused where that does not keep the
    run's epsilon."""

    @cached_property
    def calibration(self) -> Calibration:
        """See `m2fdp.core.experiment.assembly.Assembly`."""
        whole = super().calibration
        ledger, rounds = behind_own_heads(whole.mechanism.ledger), whole.affordable_rounds
        promised, without = whole.mechanism.epsilon(rounds), ledger.verified(rounds)
        if self.plan.private and without > promised * (1 + ROUNDING):
            problem = (
                f"does without missing nodes' noise, behind which epsilon is {promised:.4g} and "
                f"without which it is {without:.4g}; use wait or stop, or distrust servers and "
                "cloud"
            )
            raise InputError("deployment.on_missing", "skip", problem)
        mechanisms = tuple(replace(each, ledger=ledger) for each in whole.mechanisms)
        return replace(whole, mechanisms=mechanisms)


def experiment_of(config: Config) -> type[Experiment]:
    """What a configuration's run is, as nodes run it."""
    return WithoutMissing if config.deployment.on_missing == "skip" else Experiment
