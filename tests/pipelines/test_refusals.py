"""What can't be run is refused in one line that names the key, before anything is trained."""

import mlflow
import pytest
from tests.finished import CONTROLLED, SMALL, UPLOAD, all_runs

from m2fdp.pipelines.tracking import tracking_uri

CONTROL = f"{CONTROLLED},control.smoothness=estimated"
# Two zones of four digits' devices each, whose sums only are ever read.
ELECTED = (
    "topology.fanouts=2|4,topology.super_nodes.kind=elected,training.local_aggregation=null,"
    "secure_aggregation.layers=[2],threat.distrusted=servers|cloud|super_nodes"
)
SUMS = "algorithm=hfl_dp,secure_aggregation.noise=shared"
FEATURES = "topology.fanouts=2|3,features.map=scattering,features.dimension=30"
ONE_LAYER = "topology.fanouts=[12],topology.trust.ratios=null,training.local_aggregation=null"
DEEP = "topology.fanouts=2|2|2,topology.trust.ratios=0.5|0.5,training.local_aggregation.2=1"
MASKED = "secure_aggregation.layers=[1]"
HDP = "algorithm=hdp,secure_aggregation.noise=separate"
PAPER = f"{UPLOAD},privacy.calibration=paper"
TO_SIBLINGS = f"{UPLOAD},threat.distrusted=servers|cloud|siblings"

# By pipeline, what is asked for -> what the line says. Found in the configuration alone:
BEFORE_A_RUN = {
    "__default__": f"""
learning_rate=1 -> learning_rate = 1: unknown key
algorithm=fedprox -> algorithm = 'fedprox': is unknown; valid are hfl,
model.name=transformer -> model.name = 'transformer':
topology.edges=nowhere.csv -> topology.edges = 'nowhere.csv': no such file
{CONTROL},algorithm=hfl_dp -> control.enabled = True: needs an algorithm
{CONTROL},training.participants=2 -> training.participants = 2: the controller (control.enabled)
privacy.drift=smooth -> privacy.drift = 'smooth': was removed in 0.20: worst_case is
{CONTROL},{ONE_LAYER} -> control.enabled = True: needs edge servers
{CONTROL},{DEEP} -> training.local_aggregation = 2: is a layer that the controller does not
{ELECTED},{SUMS},threat.colluding=2 -> threat.colluding = 2: is too many of the m = 4 devices
{ELECTED},algorithm=pedpfl -> topology.super_nodes.kind = 'elected': needs servers
{ELECTED},{HDP} -> threat.distrusted = 'super_nodes': can't be protected from
{ELECTED},{SUMS},topology.super_nodes.kind=fixed -> threat.distrusted = 'super_nodes': are elected
{FEATURES},features.map=sift -> features.map
{FEATURES},features.ridge=-1 -> features.ridge""",
    "audit": f"{CONTROL} -> control.enabled = True: a pipeline of equal rounds",
    "bound": f"{CONTROL} -> control.enabled = True: a pipeline of equal rounds",
    "privacy": "zones.cloud_noise=true -> zones.cloud_noise = True: belongs to algorithm: hdp",
    "attack": f"""
{CONTROL} -> control.enabled = True: a pipeline of equal rounds
attack.method=lira,attack.observer=cloud -> attack.observer = 'cloud': reads more
attack.round=31 -> attack.round = 31: is none of training.rounds = 30
algorithm=cdp -> attack.observer = 'cloud': is trusted
{MASKED},secure_aggregation.dropout=0.1 -> dropout = 0.1: a reconstruction
{MASKED},secure_aggregation.protocol=masks -> protocol = 'masks'
training.participants=2 -> training.participants = 2: a reconstruction
attack.shadows=12 -> attack.shadows = 12""",
    "clock": """
clock.model=resnet50 -> clock.model = 'resnet50': valid: resnet56, resnet110, any
tiering.tier=3 -> tiering.tier = 3: unknown key; valid keys are offload_to""",
}
# Found in the data, by features or by the accountant, and before anything is trained:
IN_NODES = {
    "__default__": f"""
{FEATURES},features.dimension=9999 -> features.dimension = 9999: can't be had of 8 x 8 images
{FEATURES},features.public=mine.npz -> features.public = 'mine.npz': no such file; features.public
{FEATURES},model.name=cnn12 -> model.name = 'cnn12': pools three times
{PAPER},privacy.budget=0.1 -> privacy.budget = 0.1: is passed by the first round""",
    "data": """
partition.labels_per_device=11 -> partition.labels_per_device = 11:
privacy.delta=0.5 -> privacy.delta = 0.5:""",
    "privacy": f"{TO_SIBLINGS} -> privacy.epsilon = 4.0: can't be met … of the same … gradient",
    "audit": f"{SMALL},algorithm=hfl -> no bound to audit",
    "attack": """
attack.method=analytic,model.name=lenet -> attack.method = 'analytic': inverts a linear
attack.observer=far_devices,algorithm=pedpfl -> attack.observer = 'far_devices': reads no""",
    "clock": "clock.model=trained -> clock.model = 'trained': is known where a model is trained",
}
# What each pipeline is run for.
RESULTS = {
    "__default__": "model.pt",
    "data": "manifest.csv",
    "privacy": "privacy_summary.json",
    "audit": "audit.json",
    "attack": "attack.json",
    "clock": "clock_times.csv",
}


def rows(table):
    return [
        (pipeline, *row.split(" -> "))
        for pipeline, of_pipeline in table.items()
        for row in of_pipeline.strip().splitlines()
    ]


def refusal(project, kedro_run, pipeline, params):
    """What a run that is refused has said, and the names of the files that it has left."""
    result = kedro_run(f"--pipelines={pipeline}", "--params", params, code=2)
    assert "Traceback" not in result.output
    files = {path.name for path in (project / "data").rglob("*") if path.is_file()}
    return result.output, files - {".lock"}


@pytest.mark.parametrize(("pipeline", "params", "line"), rows(BEFORE_A_RUN))
def test_what_the_configuration_rules_out_opens_no_run(project, kedro_run, pipeline, params, line):
    said, files = refusal(project, kedro_run, pipeline, params)
    assert said.startswith("Error: ") and line in said and said.count("\n") == 1
    assert files == set()
    mlflow.set_tracking_uri(tracking_uri(project))
    assert all_runs() == []


@pytest.mark.parametrize(("pipeline", "params", "line"), rows(IN_NODES))
def test_what_nodes_refuse_opens_no_run_and_has_no_result(
    project, kedro_run, pipeline, params, line
):
    said, files = refusal(project, kedro_run, pipeline, params)
    last = said.splitlines()[-1]
    assert last.startswith("Error: ") and all(part in last for part in line.split(" … "))
    assert RESULTS[pipeline] not in files
    mlflow.set_tracking_uri(tracking_uri(project))
    assert all_runs() == []
