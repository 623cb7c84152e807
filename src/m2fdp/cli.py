"""What this project changes in Kedro's command line: `run`, `study`, `results`, `ui`, `promote`."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from kedro.config import AbstractConfigLoader
from kedro.framework.cli.project import run as kedro_run
from kedro.framework.project import settings
from kedro.utils import find_kedro_project
from kedro.validation.exceptions import DataValidationError
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from m2fdp import startup
from m2fdp.assignments import read_assignments
from m2fdp.command_errors import BadInput
from m2fdp.core.errors import InputError, among
from m2fdp.expectations.process import CHECKER, PASSED
from m2fdp.given.loading import parse_config
from m2fdp.given.yaml_files import read_block
from m2fdp.interruption import Interrupted

REPORT, PAPER = "report", "paper"  # reserved as studies' names


def _merged(context: click.Context, option: click.Parameter, texts: tuple[str, ...]) -> Any:
    """What `--params` says each time that it is given; the later wins."""
    if context.get_parameter_source(option.name) is ParameterSource.DEFAULT_MAP:
        texts = ((context.default_map or {})[option.name],)  # of the file of --config
    with _one_line_ends():
        return read_assignments(texts)


def _checked_file(context: click.Context, option: click.Parameter, path: str | None) -> Any:
    """The file of `--config`, which says options of the command."""
    with _one_line_ends():
        options = path and read_block(Path(path)).get(context.info_name, {})
        if not isinstance(options or {}, dict):
            raise InputError(f"--config {path}", options, f"give `{context.info_name}:` options")
        known = sorted(KEDRO_OPTIONS.keys() - {option.name})
        for name in options or ():
            if name not in known:
                raise InputError(f"--config {path}", name, f"valid are {among(name, known)}")
    context.default_map = {**(context.default_map or {}), **(options or {})}
    return path


KEDRO_OPTIONS = {option.name: option for option in kedro_run.params}
_CONFIG = copy(KEDRO_OPTIONS["config"])
_CONFIG.callback = _checked_file
_VERSIONS = copy(KEDRO_OPTIONS["load_versions"])
# Whatever it says: there are none, which `check_names` says.
_VERSIONS.callback = lambda context, option, text: {text: text} if text else {}
OPTIONS = KEDRO_OPTIONS | {
    "config": _CONFIG,
    "load_versions": _VERSIONS,
    "params": click.Option(
        ["--params"],
        type=click.UNPROCESSED,
        multiple=True,
        help="Keys of the configuration and their values, separated by commas, keys in blocks "
        "with dots, lists in brackets or with bars: seed=3,topology.fanouts=[10,5]. "
        "Given again, it adds to what was given before.",
        callback=_merged,
    ),
}


@click.group(name="m2fdp")
def cli() -> None:
    """Runs and studies of m2fdp, and the pages about them."""


@cli.command(name="run", params=list(OPTIONS.values()), help=kedro_run.help)
def run(**options: Any) -> None:
    """What `kedro run` does, and how it ends when it can't."""
    with _one_line_ends(_how_a_run_goes_on):
        # Kedro's session imports MLflow and torch; a wrong key, type or name needs neither.
        loader = _check_parameters(options)
        from m2fdp.pipelines.selection import check_names, check_selection

        check_names(options)
        _load_expectations(loader)
        with startup.imports_uncollected():
            from m2fdp.pipelines.tracking import closing_runs

            check_selection(options)
        with closing_runs():
            click.get_current_context().invoke(kedro_run, **options)


@cli.command(params=[OPTIONS["env"], OPTIONS["params"]])
@click.argument("name")
@click.argument("paper", required=False)
@click.option("--subset", is_flag=True, help="Of `paper`: those that ten minutes have room for.")
@click.option("--resume", is_flag=True, help="Skip the cells that are already finished.")
@click.option(
    "--only",
    metavar="KEY=VALUE",
    multiple=True,
    help="Run a part of the study: the cells of this version, arm or grid value. Given again, the "
    "same key adds values, another key narrows.",
)
@click.option(
    "--over",
    metavar="KEY=VALUE|VALUE",
    multiple=True,
    help="Of `sweep`: a key and its values. Given again, all combinations are run.",
)
@click.option(
    "--seeds", type=click.IntRange(min=1), help="Of `sweep`: how many seeds, from 0; by default 3."
)
@click.option("--scale", help="A smaller copy of the study, such as smoke.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Worker processes; by default one a core."
)
@click.option(
    "--ray-address",
    metavar="auto|HOST:PORT",
    help="Run the cells on this Ray cluster instead of this machine.",
)
def study(name: str, over: tuple[str, ...], seeds: int | None, **options: Any) -> None:
    """Run the grid of conf/base/studies/NAME.yml and report on it.

    The name `sweep` needs no file: it runs the grid that --over gives. `report` runs nothing: it
    reports anew on all studies' finished runs. `paper J` runs all studies of a paper.
    """
    with _one_line_ends(lambda interruption: " --resume runs what is missing."):
        paper, subset = options.pop("paper"), options.pop("subset")
        if name == PAPER:
            sys.path.insert(0, str(_project()))
            return import_module("tools.papers").run_paper(_project(), paper, subset, options)
        if paper or subset:
            raise InputError("study", paper or "--subset", "has a part in `kedro study paper` only")
        if name == REPORT:
            _check_no_options()
        else:
            from m2fdp.studies.order import Order, check_order

            of_order = {option: options.pop(option) for option in ("scale", "env", "params")}
            order = Order(name, **of_order, over=over, seeds=seeds)
            check_order(_project(), order, options["only"])
        with startup.imports_uncollected():
            from m2fdp.pipelines.tracking import closing_runs
            from m2fdp.studies.command import report
            from m2fdp.studies.command import study as run_study

        with closing_runs():
            if name == REPORT:
                report(_project())
            else:
                run_study(_project(), order, **options)


class _Maintainers(click.Group):
    """Commands of maintainers, which stand in the project's `tools/results.py`."""

    @property
    def _found(self) -> Mapping[str, click.Command]:
        sys.path.insert(0, str(_project()))
        try:
            return dict(import_module("tools.results").COMMANDS)
        except ModuleNotFoundError as error:
            if error.name not in ("tools", "tools.results"):
                raise
            return {}
        finally:
            del sys.path[0]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._found)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._found.get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        with _one_line_ends(lambda interruption: ""):
            return super().invoke(ctx)


@cli.group(cls=_Maintainers)
def results() -> None:
    """Published numbers: docs/results, and the records of runs that they are made from."""


@cli.command()
def ui() -> None:
    """Open MLflow's pages about the runs; Ctrl-C closes them."""
    from m2fdp.pipelines.pages import show

    with _one_line_ends():
        show(_project())


@cli.command()
@click.argument("name")
@click.option("--alias", default="champion", show_default=True, help="What the version is called.")
@click.option("--run", "run_id", metavar="ID", help="By default the latest of the cell `single`.")
@click.option("--reason", help="Needed where the run's promise is not verified.")
def promote(name: str, alias: str, run_id: str | None, reason: str | None) -> None:
    """Register the model of a run in MLflow as NAME, with what it promises."""
    from m2fdp.pipelines.logged_models import promote as register

    with _one_line_ends():
        version = register(_project(), name, alias, run_id, reason)
    click.echo(f"models:/{name}@{alias} is version {version.version}, of run {version.run_id}.")


def _check_no_options() -> None:
    """`kedro study report` is about all studies as they were run."""
    context = click.get_current_context()
    for option in context.params.keys() - {"name"}:
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise InputError(f"--{option}", context.params[option], "has no part in report")


@contextmanager
def _one_line_ends(how_it_goes_on: Callable[[BaseException], str] = lambda _: "") -> Iterator[None]:
    """Bad input and Ctrl-C end in one line each."""
    try:
        yield
    except InputError as error:
        raise BadInput(str(error)) from None
    except DataValidationError as error:
        raise BadInput(f"{error.dataset_name}: {error.message}") from None
    except (click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        from m2fdp.pipelines.tracking import trouble  # imports MLflow

        if (line := trouble(error)) is None:
            raise
        raise click.ClickException(line + how_it_goes_on(error)) from None
    except Interrupted as interruption:
        line = f"Stopped by {interruption}; unfinished runs are marked as killed."
        click.echo(line + how_it_goes_on(interruption), err=True)
        click.get_current_context().exit(interruption.exit_code)


def _how_a_run_goes_on(interruption: BaseException) -> str:
    """Training has noted which round it could keep, if any."""
    notes = getattr(interruption, "__notes__", [])
    goes_on = "the same command with resume=true in --params goes on from there."
    return "".join(f" {note.capitalize()}; {goes_on}" for note in notes)


def _project() -> Path:
    return find_kedro_project(Path.cwd()) or Path.cwd()


def _check_parameters(options: Mapping[str, Any]) -> AbstractConfigLoader:
    """Refuse unknown keys and wrong values, as the session of the run would do later."""
    loader = settings.CONFIG_LOADER_CLASS(
        options["conf_source"] or str(_project() / settings.CONF_SOURCE),
        options["env"] or os.getenv("KEDRO_ENV"),
        runtime_params=options["params"],
        **settings.CONFIG_LOADER_ARGS,
    )
    parse_config(loader["parameters"])
    loader.unread()
    return loader


def _load_expectations(loader: AbstractConfigLoader) -> None:
    """A split that nobody has checked yet will be: what checks it loads beside all else."""
    try:
        page = Path(loader["catalog"]["manifest"]["validator"]["options"]["filepath"])
    except (LookupError, TypeError, YAMLError, OmegaConfBaseException):
        return  # the run refuses such a catalog
    if not page.with_suffix(PASSED).is_file():
        CHECKER.start()
