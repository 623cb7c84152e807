"""MLflow's page of a study: what it found, and links that open the comparison of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlflow import MlflowClient
from mlflow.entities import Run

from m2fdp.claims.frames import TAGS
from m2fdp.core.formatting import counted
from m2fdp.pipelines import views
from m2fdp.pipelines.descriptions import DESCRIPTION, LONGEST, artifact_link, picture
from m2fdp.reporting import claim_tables
from m2fdp.reporting.tables import to_markdown
from m2fdp.studies.report import REPORT, Findings

FIGURE = "comparison.png"
_MOST_LISTED = 500  # runs; MLflow takes 20,000 characters of a view
_MOST_FAILED = 10  # cells that are told with their reasons


def describe_study(
    client: MlflowClient,
    parent: Run,
    title: str,
    command: str,
    found: Findings | None,
    failed: Mapping[str, str],
) -> None:
    """Write what a study found on the page of its run.

    Args:
        parent: MLflow's run of the study.
        command: what repeats it.
        found: None where no cell has finished.
        failed: why cells have failed, by their names.
    """
    run_id, experiment = parent.info.run_id, parent.info.experiment_id
    parts, sections = [title], []
    if failed:
        lines = [f"- {name}: {why}" for name, why in list(failed.items())[:_MOST_FAILED]]
        if omitted := len(failed) - len(lines):
            lines.append(f"- and {omitted} more")
        parts.append("\n".join([f"**{counted(len(failed), 'failed cell')}:**\n", *lines]))
    if found is not None:
        links = {
            mode: views.view_link(experiment, parent.data.tags["study"], mode)
            for mode in ("CHART", "TABLE")
        }
        parts += [
            f"{found.progress}. Their comparison: [as charts]({links['CHART']}), "
            f"[as a table]({links['TABLE']}); "
            f"{artifact_link(experiment, run_id, REPORT, 'the whole report')}.",
            to_markdown(found.table).rstrip(),
            picture(run_id, FIGURE, title),
        ]
        if found.judged is not None:
            heading, table = claim_tables.heading(found.judged), found.judged
            sections.append(f"## {heading}\n\n{claim_tables.to_markdown(table).rstrip()}")
        if len(found.pairs):
            table_of_pairs = claim_tables.pairs_markdown(found.pairs).rstrip()
            sections.append(f"## Paired differences\n\n{table_of_pairs}")
    parts.append(f"```\n{command}\n```")
    for section in sections:  # as far as there is room
        if len("\n\n".join([*parts, section])) <= LONGEST:
            parts.append(section)
    client.set_tag(run_id, DESCRIPTION, "\n\n".join(parts)[:LONGEST])


def save_view(
    client: MlflowClient, parent: Run, run_ids: Sequence[str], varied: Sequence[str]
) -> None:
    """Keep the comparison of a study's runs as a view of MLflow's, which the study's page links.

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
