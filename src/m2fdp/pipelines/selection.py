"""What `kedro run` is asked to run: is there such a thing, can it be made, and is there all that it
reads."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from kedro.io import CatalogProtocol
from kedro.pipeline import Pipeline

from m2fdp.adversaries.facts import check_attack, check_audit
from m2fdp.convergence.facts import check_bound
from m2fdp.core.algorithms import Plan
from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.files import shown

# Kedro's parameters of a run that choose nodes, with their options on the command line.
_FILTERS = ("from_nodes", "to_nodes", "from_inputs", "to_outputs", "tags", "namespaces")
OPTIONS = {"node_names": "--nodes"} | {n: f"--{n.replace('_', '-')}" for n in _FILTERS}
DEFAULT = "__default__"
# Pipelines that read keys which nothing else does, with what each makes of them.
READING = {"bound": "bound", "clock": "clock_rounds"}
# What is refused of the makers of these datasets, and of no other run.
_REFUSING = {"audit": check_audit, "attack": check_attack, "bound": check_bound}


def check_names(chosen: Mapping[str, Any]) -> None:
    """Refuse what is known without the pipelines' nodes, whose imports take seconds."""
    # MLflow has an active run for each thread: threads and processes would open runs without end.
    remedy = "a run's files are loaded and saved one after the other; leave it out"
    if chosen["is_async"]:
        raise InputError("--async", True, remedy)
    if chosen["runner_params"].get("is_async"):
        raise InputError("--runner-params", "is_async=True", remedy)
    _check_known("--runner", [chosen["runner"] or "SequentialRunner"], ["SequentialRunner"])
    _check_known("--runner-params", chosen["runner_params"], ["is_async"])
    _check_known("--load-versions", chosen["load_versions"] or (), ())
    _check_known("--pipelines", _names(chosen), pipeline_names())


def check_selection(chosen: Mapping[str, Any]) -> None:
    """Refuse what the pipelines have not, of which `check_names` knows the names."""
    filters = _filters(chosen)
    if not filters:
        return
    pipelines = all_pipelines()
    selected = sum((pipelines[name] for name in _names(chosen) or [DEFAULT]), Pipeline([]))
    valid = {
        "node_names": {node.name for node in selected.nodes},
        "from_inputs": selected.datasets(),
        "to_outputs": selected.all_outputs(),
        "tags": {tag for node in selected.nodes for tag in node.tags},
        "namespaces": {node.namespace for node in selected.nodes if node.namespace},
    }
    valid["from_nodes"] = valid["to_nodes"] = valid["node_names"]
    for parameter, values in filters.items():
        _check_known(OPTIONS[parameter], values, valid[parameter])
    spelled = {"namespaces": "node_namespaces"}
    try:
        selected.filter(**{spelled.get(name, name): values for name, values in filters.items()})
    except ValueError:
        _refuse(filters, "no node is left; choose fewer things at once")


def check_inputs(
    pipeline: Pipeline, catalog: CatalogProtocol, run_params: Mapping[str, Any]
) -> None:
    """Refuse nodes that read what neither they make nor an earlier run has left."""
    by_size = sorted(all_pipelines().items(), key=lambda item: len(item[1].nodes))
    for name in sorted(pipeline.inputs()):
        makers = [known for known, each in by_size if name in each.all_outputs()]
        if catalog.exists(name) or not makers:
            continue
        file = getattr(catalog.get(name), "_filepath", None)  # as Kedro's file datasets have it
        if file is not None:
            remedy = f"no such file; kedro run --pipelines={makers[0]} makes it"
            raise InputError("file", shown(file), remedy)
        node = next(node for node in all_pipelines()[makers[0]].nodes if name in node.outputs)
        remedy = f"{name} lives in memory only; select {node.name}, which makes it, too"
        _refuse(_filters(run_params), remedy)


def asked_for(run_params: Mapping[str, Any]) -> list[str]:
    """The pipelines of a run by whichever of Kedro's two names, but for the default one."""
    names = run_params.get("pipeline_names") or run_params.get("pipeline_name") or []
    return [name for name in ([names] if isinstance(names, str) else names) if name != DEFAULT]


def check_made(config: Config, plan: Plan, made: Collection[str]) -> None:
    """Refuse datasets that can't be made under a configuration."""
    for name in [name for name in _REFUSING if name in made]:
        _REFUSING[name](config, plan)


def reading(pipeline: Pipeline) -> frozenset[str]:
    """Of a run, the pipelines that read keys which nothing else does."""
    outputs = pipeline.all_outputs()
    return frozenset(name for name, output in READING.items() if output in outputs)


def all_pipelines() -> Mapping[str, Pipeline]:
    """The project's pipelines by name, also those that this process has not asked for before."""
    # Kedro sets up logs and displays here, which a notebook that only reads should be spared.
    from kedro.framework.project import pipelines

    pipelines.set_requested(None)  # a session leaves only those known that it was asked for
    return pipelines


def pipeline_names() -> list[str]:
    """Those of `m2fdp.pipeline_registry`: folders of this package, and the default."""
    folders = (file.parent.name for file in Path(__file__).parent.glob("*/__init__.py"))
    return [DEFAULT, *sorted(folders)]


def _names(chosen: Mapping[str, Any]) -> list[str]:
    """Of pipelines, by whichever of Kedro's two options."""
    return [*chosen["pipelines"], *([chosen["pipeline"]] if chosen["pipeline"] else [])]


def _filters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of Kedro's parameters of a run that choose nodes and are given."""
    return {parameter: options[parameter] for parameter in OPTIONS if options[parameter]}


def _check_known(option: str, names: Iterable[str], valid: Iterable[str]) -> None:
    valid = sorted(valid)
    for name in names:
        if name not in valid:
            known = f"valid are {among(name, valid)}"
            raise InputError(option, name, known if valid else "there are none in this project")


def _refuse(filters: Mapping[str, Any], remedy: str) -> NoReturn:
    """By the first of the options that choose nodes."""
    parameter, values = next(iter(filters.items()))
    raise InputError(OPTIONS[parameter], ",".join(values), remedy)
