"""MLflow's page of a study: what it found, and links that open the comparison of its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import Run

from m2fdp.claims.frames import TAGS
from m2fdp.core.formatting import counted
from m2fdp.pipelines import views
from m2fdp.pipelines.descriptions import DESCRIPTION, LONGEST, artifact_link, picture
from m2fdp.reporting import claim_tables
from m2fdp.reporting.tables import to_markdown
from m2fdp.studies.report import REPORT, Report

FIGURE = "comparison.png"
_MOST_LISTED = 500  # runs; MLflow takes 20,000 characters of a view
_MOST_FAILED = 10  # cells that are told with their reasons


def describe_study(
    client: MlflowClient,
    parent: Run,
    title: str,
    command: str,
    report: Report | None,
    failed: Mapping[str, str],
) -> None:
    """Write what a study found on the page of its run.

    Args:
        parent: MLflow's run of the study.
        command: what repeats it.
        report: None where no cell has finished.
        failed: why cells have failed, by their names.
    """
    run_id, experiment = parent.info.run_id, parent.info.experiment_id
    parts = [title]
    if failed:
        parts.append(_of_failures(failed))
    if report is not None:
        linked = artifact_link(experiment, run_id, REPORT, "the whole report")
        parts += [
            f"{report.progress}. Their comparison: [as charts]({view_link(parent, 'CHART')}), "
            f"[as a table]({view_link(parent, 'TABLE')}); {linked}.",
            to_markdown(report.table).rstrip(),
            picture(run_id, FIGURE, title),
        ]
    parts.append(f"```\n{command}\n```")
    for section in () if report is None else _sections(report):
        if len("\n\n".join([*parts, section])) <= LONGEST:
            parts.append(section)
    client.set_tag(run_id, DESCRIPTION, "\n\n".join(parts)[:LONGEST])


def _sections(report: Report) -> Iterator[str]:
    """What the page has as far as there is room: claims first."""
    if report.judged is not None:
        heading, table = (
            claim_tables.heading(report.judged),
            claim_tables.to_markdown(report.judged),
        )
        yield f"## {heading}\n\n{table.rstrip()}"
    if len(report.pairs):
        yield f"## Paired differences\n\n{claim_tables.pairs_markdown(report.pairs).rstrip()}"


def save_view(
    client: MlflowClient, parent: Run, run_ids: Sequence[str], varied: Sequence[str]
) -> None:
    """Keep the comparison of a study's runs as a view of MLflow's, which `view_link` opens.

    Args:
        run_ids: MLflow's ids of the runs that the study reports on.
        varied: what tells them apart besides algorithm and seed.
    """
    keys = ["algorithm", *(key for key in varied if key not in ("algorithm", "seed"))]
    study = parent.data.tags["study"]
    listed = ", ".join(f"'{run_id}'" for run_id in run_ids)
    chosen = f"attributes.run_id IN ({listed})"
    if len(run_ids) > _MOST_LISTED:
        chosen = f"tags.study = '{study}' and attributes.status = 'FINISHED'"
    columns = [f"{'tags' if key in TAGS else 'params'}.`{key}`" for key in [*keys, "seed"]]
    groups = [{"mode": "tag" if key in TAGS else "param", "groupByData": key} for key in keys]
    views.save_view(
        client,
        parent.info.experiment_id,
        study,
        chosen,
        columns,
        orderByKey="metrics.`accuracy`",
        groupBy={"aggregateFunction": "average", "groupByKeys": groups},
    )


def view_link(parent: Run, mode: str) -> str:
    """Where MLflow's pages show the view that `save_view` keeps, as a TABLE or as a CHART."""
    return views.view_link(parent.info.experiment_id, parent.data.tags["study"], mode)


def _of_failures(failed: Mapping[str, str]) -> str:
    lines = [f"- {name}: {why}" for name, why in list(failed.items())[:_MOST_FAILED]]
    if omitted := len(failed) - len(lines):
        lines.append(f"- and {omitted} more")
    return "\n".join([f"**{counted(len(failed), 'failed cell')}:**\n", *lines])
