"""`kedro run` in a folder of its own: what it writes, as digests and bounds."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from click.testing import CliRunner
from tests.finished import MLFLOW_VARIABLES, make_project
from tests.golden.adapter import cut_off_at

OWN_MODEL = """
from torch import nn


def build(shape, n_classes):
    n_features = shape[0] * shape[1] * shape[2]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_classes)
    )
"""
# A tree of depth 3 whose servers have one to three children.
EDGES = """parent,child
cloud,A
cloud,B
A,a
B,b
B,c
a,0
a,1
b,2
c,3
c,4
c,5
"""

_BASE = "training.rounds=5,training.local_steps=4,training.evaluate_every=2"
_UPLOAD = "privacy.mechanism=upload"
_DEEP = "topology.fanouts=2|2|3,topology.trust.ratios=0.5|0.5"
_DEEPER = "topology.fanouts=2|2|2|2,topology.trust.ratios=0.5|0.5|0.5"
_STAR = "topology.fanouts=[8],topology.trust.ratios=null,training.local_aggregation=null"
_TWO = "topology.fanouts=4|3"
_RAGGED = (
    "topology.edges=edges.csv,topology.fanouts=null,topology.trust.ratios=null,"
    "topology.trust.untrusted=B|b"
)
_CONTROL = (
    f"{_TWO},control.enabled=true,control.gap=papers,training.rounds=12,training.batch_size=16,"
    "control.tau=20,control.max_local_steps=6,control.step_size_factor=20"
)
_TIERS = (
    "topology.fanouts=2|2,model.name=cnn12,model.channels=2|3|4,tiering.tiers=2,training.rounds=2,"
    "training.local_aggregation=null"
)
# By cell. Each adds to _BASE, and the later of two values of a key counts.
RUNS = {
    "hfl": f"{_TWO},algorithm=hfl,training.batch_size=16",
    "hfl_upload_deep": f"{_DEEP},algorithm=hfl,{_UPLOAD}",
    "pedpfl": f"{_TWO},algorithm=pedpfl,training.batch_size=16",
    "pedpfl_upload": f"{_TWO},algorithm=pedpfl,{_UPLOAD}",
    "hfl_dp": f"{_DEEP},algorithm=hfl_dp",
    "hfl_dp_upload": f"{_TWO},algorithm=hfl_dp,{_UPLOAD},privacy.calibration=paper",
    "default": "",
    "star": _STAR,
    "star_upload": f"{_STAR},{_UPLOAD},training.batch_size=20",
    "deep_upload": f"{_DEEP},{_UPLOAD},training.local_aggregation.2=1",
    "deeper": f"{_DEEPER},training.batch_size=16,training.local_aggregation.3=1",
    "deeper_upload": f"{_DEEPER},{_UPLOAD},partition.scheme=dirichlet",
    "ragged": f"{_RAGGED},training.local_aggregation.2=1",
    "ragged_upload": f"{_RAGGED},{_UPLOAD},partition.scheme=quantity",
    "device": f"{_TWO},privacy.unit=device",
    "device_upload": f"{_DEEP},{_UPLOAD},privacy.unit=device,partition.scheme=iid",
    "participants": f"{_TWO},training.participants=2,training.batch_size=16",
    "participants_upload": f"{_DEEP},{_UPLOAD},training.participants=2",
    "replace_one": f"{_TWO},privacy.adjacency=replace_one,training.batch_size=16",
    "svm": f"{_TWO},model.name=svm",
    "svm_crammer_singer": f"{_TWO},model.name=svm,model.hinge=crammer_singer,{_UPLOAD}",
    "cnn12": (
        "topology.fanouts=2|2,model.name=cnn12,model.channels=2|3|4,training.rounds=2,"
        "training.local_steps=2"
    ),
    "cnn12_upload": (
        f"topology.fanouts=2|2,model.name=cnn12,model.channels=2|3|4,{_UPLOAD},"
        "training.rounds=2,training.batch_size=16"
    ),
    "own_model": f"{_TWO},model.name=golden_model:build,training.rounds=2",
    "backend_reference": f"{_TWO},training.backend=reference,training.rounds=2",
    "backend_sequential": f"{_TWO},training.backend=sequential,training.rounds=2",
    "control": f"{_CONTROL},control.smoothness=0.7",
    "control_estimated": f"{_CONTROL},control.smoothness=estimated",
    "control_paper": (
        f"{_CONTROL},{_UPLOAD},privacy.calibration=paper,training.batch_size=null,"
        "control.smoothness=0.7"
    ),
    "validation": (
        f"{_TWO},partition.validation_fraction=0.1,training.evaluate_on=validation,seed=3,"
        "partition.samples_per_device=40"
    ),
    "budget": f"{_TWO},privacy.budget=3",
    "resumed": f"{_TWO},training.batch_size=16,training.rounds=9,training.checkpoint_every=3",
    "resumed_upload": (
        f"{_DEEP},{_UPLOAD},training.participants=2,training.rounds=9,training.checkpoint_every=3"
    ),
    "resumed_control": f"{_CONTROL},control.smoothness=estimated,training.checkpoint_every=3",
    "bound": f"{_TWO},{_UPLOAD},privacy.calibration=paper",
    # Added up block by block: more than 16 servers, or 64 devices, below the cloud.
    "wide": "topology.fanouts=20|2,training.batch_size=8",
    "wide_upload": f"topology.fanouts=18|2|2,topology.trust.ratios=0.5|0.5,{_UPLOAD}",
    "wide_star": f"{_STAR},topology.fanouts=[70],training.participation=0.5",
    "scaffold": f"{_TWO},algorithm=scaffold",
    "momentum": f"{_TWO},training.server.rule=momentum",
    "in_tiers": f"{_TIERS},algorithm=dtfl,clock.model=trained,partition.samples_per_device=20",
    "split_steps": f"{_TIERS},algorithm=m2fdp_tiers,training.rounds=1",
}
PIPELINES = {"bound": "bound"}
# After so many rounds they are cut off and go on; a run that is not must give the same.
CUT_OFF = {"resumed": 8, "resumed_upload": 5, "resumed_control": 5}
AUDITS = {
    "audit_gradient": f"{_TWO},training.rounds=2,training.local_steps=2,audit.repetitions=200",
    "audit_upload": (
        f"{_DEEP},{_UPLOAD},training.rounds=2,training.local_aggregation.1=2,audit.repetitions=200"
    ),
}
FILES = (
    "05_model_input/{}/manifest.csv",
    "05_model_input/{}/network.csv",
    "06_models/{}/configuration.json",
    "06_models/{}/model.pt",
    "07_model_output/{}/confusion_matrix.csv",
    "07_model_output/{}/gradient_norms.csv",
    "07_model_output/{}/round_metrics.csv",
    "08_reporting/{}/bound.csv",
    "08_reporting/{}/bound_layers.csv",
    "08_reporting/{}/bound_summary.json",
    "08_reporting/{}/epsilon_over_rounds.csv",
    "08_reporting/{}/privacy_ledger.csv",
    "08_reporting/{}/privacy_summary.json",
)


def processor() -> str:
    """The kind that decides a run's last bits: the widest instructions that torch finds."""
    return str(torch.backends.cpu.get_cpu_capability())


def digests(cells: Sequence[str], threads: int) -> Iterator[tuple[str, dict[str, str]]]:
    """For each run, SHA-256 of the files that it leaves, by name."""
    with _project() as project:
        for cell in cells:
            params = f"{_BASE},{RUNS[cell]},threads={threads}".replace(",,", ",")
            if cell not in CUT_OFF:
                _run(cell, params, PIPELINES.get(cell))
                yield cell, _digests(project, cell)
                continue
            _run(f"{cell}_whole", params)
            with cut_off_at(CUT_OFF[cell]):
                _run(cell, params, cut_off=True)
            _run(cell, f"{params},resume=true")
            found = _digests(project, cell)
            if found != _digests(project, f"{cell}_whole"):
                found["resumed"] = "differs from the run that was not cut off"
            yield cell, found


def audits(cells: Sequence[str], threads: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """For each audit, what it found about every observer."""
    with _project() as project:
        for cell in cells:
            _run(cell, f"{AUDITS[cell]},threads={threads}", "audit")
            file = project / "data/08_reporting" / cell / "audit.json"
            yield cell, json.loads(file.read_text())["observers"]


@contextmanager
def _project() -> Iterator[Path]:
    """A copy of the project's configuration, as it is in the working tree, as working directory."""
    from kedro.framework.startup import bootstrap_project

    before = Path.cwd()
    for variable in MLFLOW_VARIABLES:
        os.environ.pop(variable, None)
    with TemporaryDirectory() as folder:
        project = Path(folder).resolve()
        make_project(project)
        (project / "src" / "golden_model.py").write_text(OWN_MODEL)
        (project / "edges.csv").write_text(EDGES)
        os.chdir(project)
        try:
            bootstrap_project(project)
            yield project
        finally:
            os.chdir(before)


def _run(cell: str, params: str, pipeline: str | None = None, cut_off: bool = False) -> None:
    from m2fdp.cli import run

    arguments = ["--params", f"{params},cell={cell}"]
    result = CliRunner().invoke(run, arguments + [f"--pipelines={pipeline}"] * bool(pipeline))
    if isinstance(result.exception, OSError) if cut_off else result.exit_code == 0:
        print(f"{cell} ran", file=sys.stderr)
        return
    raise RuntimeError(f"{cell} ended with {result.exit_code}: {result.output}")


def _digests(project: Path, cell: str) -> dict[str, str]:
    files = [project / "data" / file.format(cell) for file in FILES]
    return {file.name: sha256(file.read_bytes()).hexdigest() for file in files if file.is_file()}
