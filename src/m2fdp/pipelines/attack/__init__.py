"""Try what an observer can take: reconstruction and membership from the run's own messages."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kedro.pipeline import Pipeline

from m2fdp.experiment import Experiment
from m2fdp.pipelines.datasets import node
from m2fdp.progress import items_bar
from m2fdp.reporting.room_figures import attack_figure, print_attack


def attack_run(
    experiment: Experiment, attack_results: Path, begin_run: Callable[[], object]
) -> Mapping[str, Any]:
    """What the configured observer takes; starts and shadows that are done are kept meanwhile."""
    what = "shadows" if experiment.config.attack.method == "lira" else "starts"
    with items_bar(what) as show:

        def on_done(done: int, total: int) -> None:
            begin_run()
            show(done, total)

        attacked = experiment.attack(attack_results, on_done)
    print_attack(attacked.record)
    return attacked.record


def create_pipeline() -> Pipeline:
    """Experiment to what an observer has taken, beside the ledger's epsilon."""
    return Pipeline(
        [
            node(attack_run, ["prepared_experiment", "attack_results", "begin_run"], "attack"),
            node(attack_figure, "attack", "attack_figure", "draw_attack"),
        ]
    )
