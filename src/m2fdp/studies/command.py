"""`kedro study`: schedules chosen, a grid of cells run under one MLflow run, then a report."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import nan
from pathlib import Path

import click
import mlflow
import pandas as pd
from kedro.framework.session import KedroSession
from mlflow.entities import Run

from m2fdp.core.config import Config
from m2fdp.core.errors import InputError, among
from m2fdp.core.formatting import counted
from m2fdp.pipelines import tracking
from m2fdp.pipelines.pages import DESCRIPTION
from m2fdp.processes.connection import check_installed, connected
from m2fdp.processes.sites import check_execution
from m2fdp.processes.tasks import OPTION
from m2fdp.progress import so_far, telling
from m2fdp.selection.accounting import Targets
from m2fdp.studies import grid, search
from m2fdp.studies import report as reports
from m2fdp.studies.launcher import Launcher, search_runs
from m2fdp.studies.order import Order, part_of, read_study
from m2fdp.studies.report import Findings, findings
from m2fdp.studies.search import Candidate, Tried, verified_targets
from m2fdp.studies.search_report import whole_table
from m2fdp.studies.study import Study
from m2fdp.studies.tracked_runs import Record, load_costs, tracked_record
from m2fdp.studies.worker import PARENT_TAG
from m2fdp.tables.regression import of_numbers


def study(
    project: Path,
    order: Order,
    *,
    only: Sequence[str],
    resume: bool,
    workers: int | None,
    ray_address: str | None,
) -> None:
    """Choose a study's schedules, run its cells and report on them. A study that can't be run is
    refused before anything starts; where cells failed, it ends with code 1 after the report.

    Args:
        only: the part to run, as `part_of` reads it; all where it is empty.
        resume: skip the cells that have a finished run of the same configuration, and report on
            all finished cells, of whatever part.
    """
    setting = checked_setting(project, order)
    chosen = part_of(setting.study, only)
    context = click.get_current_context()
    lock = project / "data" / "08_reporting" / order.identity / ".lock"
    context.with_resource(tracking.locked(lock, "study", order.identity, "stop it"))
    if ray_address is not None:
        check_installed(OPTION, ray_address)
        context.with_resource(connected(ray_address, OPTION))
    tracking.close_stale_runs()
    parent = _open_parent(order, setting.study.title, resume)
    env, on_ray = order.env or setting.study.env, ray_address is not None
    launcher = Launcher(project, env, order.identity, parent, workers, on_ray, resume)
    outcome = _run(setting, launcher, chosen)
    client, found, whole = mlflow.MlflowClient(), None, outcome
    if only and resume:  # nothing is run
        every = tuple(grid.points(setting.study))
        whole = _run(setting, replace(launcher, only_finished=True), every)
    if whole.runs:
        found = findings(setting.study, _record(setting, whole))
        files = reports.write_report(launcher.folder, order.command, found)
        for file in files:
            mlflow.log_artifact(str(file))
        reports.save_view(client, parent, list(whole.runs), grid.varied_keys(setting.study))
        reports.print_report(found, files)
    reasons = _reasons(parent, outcome.failed)
    reports.describe_study(client, parent, setting.study.title, order.command, found, reasons)
    click.echo("Every run in detail: make ui")
    if failed := len(chosen) - len(outcome.runs):
        cells = counted(len(chosen), "cell")
        click.echo(f"{failed} of {cells} failed; --resume runs only them.", err=True)
        context.exit(1)


def report(project: Path) -> None:
    """Report anew, from their finished runs, on all studies that were ever started here."""
    studies: dict[str, Findings] = {}
    folder = project / "data" / "08_reporting"
    for identity, (order, parent) in sorted(_started(project).items()):
        try:
            record = _finished_record(project, order, parent)
            if record is not None:
                found = findings(*record)
                reports.write_report(folder / identity, order.command, found)
                studies[identity] = found
        except (InputError, click.ClickException) as error:  # hooks raise theirs as the latter
            click.echo(f"{identity}: left out; {error}", err=True)
    if not studies:
        raise InputError("studies", "(none)", "none has a finished run; `kedro study quickstart`")
    reports.summarise(folder, studies)


def finished_record(project: Path, identity: str) -> tuple[Study, Record]:
    """The study as its file is now, and what the finished runs say that it has here."""
    started = _started(project)
    if identity not in started:
        raise InputError("study", identity, f"no runs of it are here; {among(identity, started)}")
    if (record := _finished_record(project, *started[identity])) is None:
        raise InputError("study", identity, "none of its runs is finished, as its file is now")
    return record


def _started(project: Path) -> dict[str, tuple[Order, Run]]:
    """The studies that were ever started here, as each was last; their identities as keys."""
    session = KedroSession.create(project, save_on_close=False)
    with session:
        session.load_context()  # points MLflow at the project's store
    latest: dict[str, tuple[Order, Run]] = {}
    for run in search_runs("tags.role = 'study' and tags.`order` LIKE '{%'"):
        order = Order(**json.loads(run.data.tags["order"]))
        latest.setdefault(run.data.tags["study"], (order, run))
    return latest


@dataclass(frozen=True)
class Outcome:
    """What became of a study's points, all of them or a part."""

    # The cells that have finished, in the order of the points, by MLflow's ids of their runs.
    runs: Mapping[str, grid.Cell]
    failed: Mapping[str, str | None]  # names of the others, with their hashes if they ever ran
    tried: Sequence[Candidate]
    table: pd.DataFrame  # of `search_table`
    # what runs of the searches have promised, by the hashes of their cells
    guarantees: Mapping[str, str]


def _run(setting: grid.Setting, launcher: Launcher, chosen: Sequence[grid.Point]) -> Outcome:
    """Search and run, as far as the launcher does."""
    results: dict[str, Tried] = {}
    guarantees: dict[str, str] = {}
    client = mlflow.MlflowClient()

    def tried_out(candidates: Sequence[Candidate]) -> grid.Schedules:
        if launcher.resume and not launcher.only_finished:
            search.check_none_else(setting, candidates)
        cells = [cell for one in candidates for cell in one.cells]
        if any(of_numbers(cell.config.model) for cell in cells):
            text = (
                "chooses by accuracy, which labels that are numbers have none of; name the values"
            )
            raise InputError("search", setting.name, text)
        run_ids = launcher.run("runs of the search", cells, search.SEARCHING)
        candidate_of = {cell.hash: one for one in candidates for cell in one.cells}
        targets = {one.target for one in candidates if one.target is not None}
        costs = {target: load_costs(run_ids.values(), target).to_dict() for target in targets}
        for cell_hash, run_id in run_ids.items():
            one, found = candidate_of[cell_hash], client.get_run(run_id).data
            accuracy = found.metrics["score" if one.counted else "accuracy"]
            guarantees[cell_hash] = found.tags.get("privacy", "")
            of_runs = costs[one.target].get(one.by, {}) if one.target is not None else {}
            results[cell_hash] = Tried(accuracy, float(of_runs.get(run_id, nan)))
        return search.choose(candidates, results)

    schedules, tried = search.search_all(setting, chosen, tried_out)
    by_name = {cell.name: cell for cell in grid.expand(setting, schedules)}
    cells = [by_name[point.name] for point in chosen if point.name in by_name]
    failed: dict[str, str | None] = {p.name: None for p in chosen if p.name not in by_name}
    for name in () if launcher.only_finished else failed:
        click.echo(f"{name}: FAILED, no candidate of its search finished")
    run_ids = launcher.run("cells", cells)
    failed |= {cell.name: cell.hash for cell in cells if cell.hash not in run_ids}
    runs = {run_ids[cell.hash]: cell for cell in cells if cell.hash in run_ids}
    table = search.search_table(tried, results, schedules)
    return Outcome(runs, failed, tried, table, guarantees)


def _reasons(parent: Run, failed: Mapping[str, str | None]) -> dict[str, str]:
    """Why cells have failed, by their names, as their runs say."""
    if not failed:
        return {}
    of_study = f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'"
    endings: dict[str, str] = {}
    for run in search_runs(f"{of_study} and attributes.status != 'FINISHED'"):
        why = run.data.tags.get(tracking.END_TAG, "its worker process died")
        endings.setdefault(run.data.tags.get("cell_hash", ""), why)
    return {
        name: endings.get(cell_hash, "did not start") if cell_hash else "no candidate finished"
        for name, cell_hash in failed.items()
    }


def _finished_record(project: Path, order: Order, parent: Run) -> tuple[Study, Record] | None:
    """The study, and what its finished runs say; None without any."""
    setting = checked_setting(project, order)
    launcher = Launcher(project, None, order.identity, parent, only_finished=True)
    outcome = _run(setting, launcher, tuple(grid.points(setting.study)))
    return (setting.study, _record(setting, outcome)) if outcome.runs else None


def _record(setting: grid.Setting, outcome: Outcome) -> Record:
    """Of the finished cells."""
    names, schedules, guarantees = {}, {}, dict(outcome.guarantees)
    for run_id, cell in outcome.runs.items():
        names[run_id], schedules[cell.name] = cell.name, cell.schedule
        guarantees[cell.hash] = mlflow.get_run(run_id).data.tags.get("privacy", "")
    cells = list(outcome.runs.values())
    procedures = whole_table(setting.study, cells, outcome.tried, guarantees)
    tables = {"search": outcome.table, "procedures": procedures}
    return tracked_record(setting.study, names, schedules, **tables)


def checked_setting(project: Path, order: Order) -> grid.Setting:
    """The study that was asked for, known to be valid before anything starts."""
    setting = load_setting(project, order)
    every = tuple(grid.points(setting.study))
    schedules, _ = search.search_all(setting, every, search.first_of)
    cells = grid.expand(setting, schedules)
    reports.check_report(setting.study, cells)
    executions = [cell.config.execution for cell in cells]
    for execution in {(each.engine, each.address): each for each in executions}.values():
        check_execution(execution)
    # Their data have to be there now.
    return replace(setting, counting=_counted_targets)


def load_setting(project: Path, order: Order) -> grid.Setting:
    """The study that was asked for, with its environment's parameters."""
    loaded, last = read_study(project, order)
    session = KedroSession.create(project, save_on_close=False, env=order.env or loaded.env)
    with session:
        # Checks the environment and points MLflow at the project's store.
        base = session.load_context().config_loader["parameters"]
    return grid.Setting(order.identity, loaded, base, last, order.params)


def _counted_targets(
    searched: Sequence[Config], released: Sequence[Config], share: float
) -> Targets:
    """`verified_targets`, which says so where it takes long."""
    runs = counted(len(searched), "run")
    what = f"Calibrating {runs} of a counted search with the one that it chooses"
    with telling(click.echo, partial(so_far, what), first_after_s=1.0):
        return verified_targets(searched, released, share)


def _open_parent(order: Order, title: str, resume: bool) -> Run:
    """The MLflow run that the cells' runs are filed under; resumed, the study's latest one."""
    name = order.identity
    earlier = search_runs(f"tags.study = '{name}' and tags.role = 'study'") if resume else []
    if earlier:
        tracking.forget_end(earlier[0])
    return mlflow.start_run(
        run_id=earlier[0].info.run_id if earlier else None,
        run_name=order.run_name,
        tags={
            "study": name,
            "role": "study",
            "order": json.dumps(asdict(order)),
            tracking.PROCESS_TAG: tracking.process_tag(),
            "mlflow.source.name": "kedro study",
            DESCRIPTION: title,
        },
    )
