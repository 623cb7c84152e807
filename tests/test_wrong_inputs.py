"""What users get wrong, through the real commands: each ends in one line that says where."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from m2fdp.cli import cli

OWN_MODELS = """
import torch
from torch import nn


class Own(nn.Module):
    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(shape[0] * shape[1] * shape[2], n_classes)

    def forward(self, x):
        return self.layer(x.flatten(1))


class InPlace(Own):
    def forward(self, x):
        x -= 0.5
        return super().forward(x)


class Pair(Own):
    def forward(self, x):
        return super().forward(x), 1


class Spare(Own):
    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        self.spare = nn.Linear(2, 2)


class Buffered(Own):
    def __init__(self, shape, n_classes):
        super().__init__(shape, n_classes)
        self.register_buffer("mean", torch.zeros(1))


def one_argument(shape):
    return Own(shape, 10)


def nothing(shape, n_classes):
    pass


def too_few(shape, n_classes):
    return Own(shape, n_classes - 1)


def wrong_size(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, n_classes))


def frozen(shape, n_classes):
    module = Own(shape, n_classes)
    module.layer.bias.requires_grad_(False)
    return module


def no_parameters(shape, n_classes):
    return nn.Flatten()


def doubled(shape, n_classes):
    return Own(shape, n_classes).double()


def unset(shape, n_classes):
    module = Own(shape, n_classes)
    nn.init.constant_(module.layer.weight, float("nan"))
    return module


class Logarithmic(Own):
    def forward(self, x):
        return super().forward(torch.log(x * 0))


def fails(shape, n_classes):
    raise RuntimeError("of my own")


constant = 5
"""

OWN_LOSSES = """
import torch
from torch.nn.functional import cross_entropy


def mean(scores, labels):
    return cross_entropy(scores, labels)


def hits(scores, labels):
    return (scores.argmax(1) == labels).float()


def endless(scores, labels):
    return cross_entropy(scores, labels, reduction="none") / 0


def fails(scores):
    pass
"""

OWN_SCHEMES = """
import numpy as np


def short(labels, n_classes, edge_of_device, rng):
    return np.zeros(3, dtype=int)


def halves(labels, n_classes, edge_of_device, rng):
    return labels / 2


def beyond(labels, n_classes, edge_of_device, rng):
    return np.arange(len(labels)) % (len(edge_of_device) + 1)


def greedy(labels, n_classes, edge_of_device, rng):
    return np.zeros_like(labels)


def restless(labels, n_classes, edge_of_device, rng):
    return np.random.default_rng().integers(len(edge_of_device), size=len(labels))


def nothing(labels, n_classes, edge_of_device, rng):
    pass


def fails(labels, n_classes, edge_of_device, rng):
    return labels[n_classes, :]
"""

OWN_DATA = """
import numpy as np
from m2fdp.core.data.dataset import Dataset

IMAGES, LABELS = np.zeros((300, 8, 8, 1), dtype=np.uint8), np.arange(300) % 3


def make(images=IMAGES, labels=LABELS, n_train=200, n_classes=3):
    return Dataset("own", images, labels, n_train, n_classes)


def pixels():
    return make(images=IMAGES + 0.5 - 1)


def classes():
    return make(n_classes=4)


def training():
    return make(n_train=300)


def listed():
    return make(labels=[0, 1, 2])


def bare():
    return IMAGES, LABELS


def fails():
    return np.load("absent.npy")


def demanding(config, folder):
    pass
"""

EDGES = "parent,child\ncloud,A\ncloud,B\nA,1\nA,2\nB,3\nB,4\n"
BY_EDGES = "topology.edges=e.csv,topology.fanouts=null"
BY_ARRAYS = "dataset.name=npz,dataset.root=x.npz,topology.fanouts=2|3,partition.labels_per_device=2"
LOCAL = "conf/local/parameters.yml"
DATA = "conf/base/parameters_data.yml"
CATALOG = "conf/local/catalog.yml"
STUDY = "conf/base/studies/own.yml"


def run(params):
    return ["run", f"--params={params}"]


def model(function):
    return {"own_models.py": OWN_MODELS}, run(f"model.name=own_models:{function}")


def loss(function, name="softmax"):
    return {"own_losses.py": OWN_LOSSES}, run(f"model.name={name},model.loss=own_losses:{function}")


def scheme(function):
    return {"own_schemes.py": OWN_SCHEMES}, run(f"partition.scheme=own_schemes:{function}")


def data(function):
    return {"own_data.py": OWN_DATA}, run(f"dataset.name=own_data:{function}")


def edges(content):
    return {"e.csv": content}, run(BY_EDGES)


def study(content):
    return {STUDY: content}, ["study", "own"]


def arrays(**changes):
    rng = np.random.default_rng(0)
    content = {"x_train": rng.random((60, 8, 8)), "x_test": rng.random((20, 8, 8))}
    content |= {"y_train": np.arange(60) % 3, "y_test": np.arange(20) % 3} | changes
    file = io.BytesIO()
    np.savez(file, **content)
    return {"x.npz": file.getvalue()}, run(BY_ARRAYS)


def setting(params):
    return {}, run(params)


# By name: files of the project ("+" appends to what is there), the command, words of the line.
WRONG = {
    # conf/
    "a bracket left open": ({f"+{DATA}": "x: [1,\n"}, ["run"], [DATA, "line", "no YAML"]),
    "a tab": ({f"+{DATA}": "x:\n\ty: 1\n"}, ["run"], [DATA, r"\ty: 1", "no YAML"]),
    "a key twice": ({f"+{DATA}": "dataset:\n  name: mnist\n"}, ["run"], [DATA, "dataset again"]),
    "a key in two files": (
        {"conf/base/parameters_x.yml": "seed: 1\n"},
        ["run"],
        ["seed", "_x.yml"],
    ),
    "a list at the top": ({LOCAL: "- 1\n"}, ["run"], [LOCAL, "a list"]),
    "a word at the top": ({LOCAL: "hello\n"}, ["run"], [LOCAL, "a plain value"]),
    "two documents": ({LOCAL: "seed: 1\n---\nseed: 2\n"}, ["run"], [LOCAL, "line 2"]),
    "an unknown tag": ({LOCAL: "seed: !other 1\n"}, ["run"], [LOCAL, "line 1", "!other"]),
    "Latin-1": ({LOCAL: "a: é\n".encode("latin-1")}, ["run"], [LOCAL, "UTF-8"]),
    "an unknown resolver": (
        {LOCAL: "seed: ${nope:1}\n"},
        ["run"],
        [f"{LOCAL}, line 1: seed", "nope"],
    ),
    "a reference to nowhere": (
        {LOCAL: "seed: ${nope}\n"},
        ["run"],
        [f"{LOCAL}, line 1: seed", "nope"],
    ),
    "a list over a block": ({LOCAL: "training: [1]\n"}, ["run"], [f"{LOCAL}, line 1: training"]),
    "broken globals": ({"conf/base/globals.yml": "a: [\n"}, ["run"], ["conf/base/globals.yml"]),
    "broken credentials": ({"conf/local/credentials.yml": "a: [\n"}, ["run"], ["credentials.yml"]),
    "a catalog twice": (
        {"+conf/base/catalog.yml": "model:\n  type: MemoryDataset\n"},
        ["run"],
        ["conf/base/catalog.yml", "model again"],
    ),
    "an unknown type of dataset": (
        {CATALOG: "model:\n  type: nope.Nope\n"},
        ["run"],
        [f"{CATALOG}, line 1: model", "nope.Nope"],
    ),
    "a dataset without a file": (
        {CATALOG: "model:\n  type: m2fdp.pipelines.datasets.TableDataset\n"},
        ["run"],
        [f"{CATALOG}, line 1: model", "filepath"],
    ),
    "a dataset that is a number": ({CATALOG: "model: 5\n"}, ["run"], [f"{CATALOG}, line 1: model"]),
    "a manifest in memory": (
        {CATALOG: "manifest:\n  type: MemoryDataset\n"},
        ["run"],
        ["catalog.yml", "manifest.dataset.filepath"],
    ),
    "an unknown key of mlflow.yml": (
        {"conf/local/mlflow.yml": "tracking:\n  run:\n    nam: x\n"},
        ["run"],
        ["conf/local/mlflow.yml, line 3: tracking.run.nam"],
    ),
    "mlflow.yml that does not parse": (
        {"conf/local/mlflow.yml": "tracking: [\n"},
        ["run"],
        ["conf/local/mlflow.yml", "no YAML"],
    ),
    "an environment inside another": (
        {},
        ["run", "--env=base/studies"],
        ["--env", "fashion_mnist"],
    ),
    "an environment misspelled": ({}, ["run", "--env=fmnist"], ["--env", "mean mnist?"]),
    "an environment outside": ({}, ["run", "--env=../conf/mnist"], ["--env", "fashion_mnist"]),
    "a store in files": (
        {"conf/local/mlflow.yml": "server:\n  mlflow_tracking_uri: mlruns\n"},
        ["run"],
        ["conf/local/mlflow.yml, line 2: server.mlflow_tracking_uri", "maintenance mode"],
    ),
    "--config left open": ({"c.yml": "run: ["}, ["run", "--config=c.yml"], ["c.yml", "no YAML"]),
    "--config with a list": ({"c.yml": "- 1"}, ["run", "--config=c.yml"], ["c.yml", "a list"]),
    "--config with a word": ({"c.yml": "run: x"}, ["run", "--config=c.yml"], ["c.yml", "'x'"]),
    "--config with an unknown option": (
        {"c.yml": "run: {pipelins: x}"},
        ["run", "--config=c.yml"],
        ["c.yml", "did you mean pipelines?"],
    ),
    # --params
    "no value": (*setting("seed"), ["--params", "KEY=VALUE"]),
    "an empty text": (*setting("features.folder=''"), ["features.folder = ''", "at least 1"]),
    "a block and its key": (
        *setting("training=2,training.rounds=1"),
        ["--params = 'training'", "is set and training.rounds as well"],
    ),
    "a value left open": (*setting("training.rounds=[1"), ["--params", "no YAML"]),
    "a list without brackets": (
        *setting("seed=1,topology.fanouts=10, 5"),
        ["--params", "lists in brackets: topology.fanouts=[10,5]"],
    ),
    "a block that is open": (
        *setting("training.local_aggregation={1: 5, 2: 3"),
        ["--params = 'training.local_aggregation={1: 5, 2: 3'", "no YAML"],
    ),
    "an octal number": (*setting("seed=0o10"), ["seed = '0o10'", "integer"]),
    "a number of base 60": (*setting("seed=1:30"), ["seed = '1:30'", "integer"]),
    # conf/
    "a file of parameters with a slip": (
        {"conf/local/paramters.yml": "seed: 1"},
        ["run"],
        ["'conf/local/paramters.yml': nothing reads it", "did you mean parameters.yml?"],
    ),
    "a file that is named as a block": (
        {"conf/local/privacy.yml": "privacy: {epsilon: 1}"},
        ["run"],
        ["'conf/local/privacy.yml': nothing reads it", "did you mean parameters_privacy.yml?"],
    ),
    "an environment with a slip": (
        {"conf/mydata/parameter.yml": "seed: 1"},
        ["run", "--env=mydata"],
        ["'conf/mydata/parameter.yml': nothing reads it", "did you mean parameters.yml?"],
    ),
    "a file of another kind": (
        {"conf/local/parameters.toml": "seed = 1"},
        ["run"],
        ["'conf/local/parameters.toml': nothing reads it", "did you mean parameters.yml?"],
    ),
    "parameters beside the environments": (
        {"conf/parameters.yml": "seed: 1"},
        ["run"],
        ["'conf/parameters.yml': nothing reads it there; move it to conf/local"],
    ),
    "a study over a file with a slip": (
        {"conf/base/paramters.yml": "seed: 1"},
        ["study", "fig7"],
        ["'conf/base/paramters.yml': nothing reads it"],
    ),
    "a value that refers to nowhere": (*setting("seed=${nope}"), ["--params seed", "nope"]),
    "a list for a block": (*setting("training=[1]"), ["--params training"]),
    "a word for a number": (*setting("training.rounds=many"), ["training.rounds", "integer"]),
    "yes for a number": (*setting("training.rounds=yes"), ["training.rounds"]),
    "not a number": (*setting("training.learning_rate=.nan"), ["training.learning_rate", "finite"]),
    "an infinite power": (
        *setting("resources.wired_power_dbm=.inf"),
        ["resources.wired_power_dbm"],
    ),
    "beyond float32": (*setting("privacy.clipping_norm=1e300"), ["privacy.clipping_norm"]),
    "next to nothing": (*setting("privacy.epsilon=1e-300"), ["privacy.epsilon"]),
    "a billion rounds": (*setting("training.rounds=1000000000"), ["rounds x local_steps"]),
    "a billion devices": (*setting("topology.fanouts=1000000000|2"), ["topology.fanouts", "nodes"]),
    "no devices": (*setting("topology.fanouts=0"), ["topology.fanouts"]),
    "more participants than devices": (
        *setting("training.participants=6"),
        ["training.participants", "at most 5"],
    ),
    "a cell outside": (*setting("cell=../x"), ["cell"]),
    "a cell without end": (*setting("cell=" + "a" * 300), ["cell"]),
    "no such data set": (*setting("dataset.name=cifar"), ["dataset.name", "cifar10"]),
    "an algorithm misspelled": (*setting("algorithm=mf2dp"), ["algorithm", "mean m2fdp?"]),
    "a key of another block": (*setting("epsilon=1"), ["epsilon", "mean privacy.epsilon?"]),
    "a pipeline misspelled": ({}, ["run", "--pipelines=audti"], ["--pipelines", "mean audit?"]),
    "no such file": (*setting("dataset.name=npz,dataset.root=no.npz"), ["dataset.root", "no.npz"]),
    # models
    "a model of one argument": (*model("one_argument"), ["model.name", "one_argument() takes 1"]),
    "no model": (*model("nothing"), ["model.name", "NoneType"]),
    "too few outputs": (*model("too_few"), ["model.name", "(3, 9)", "(3, 10)"]),
    "two outputs": (*model("Pair"), ["model.name", "tuple"]),
    "another input size": (*model("wrong_size"), ["model.name", "(1, 8, 8)", "3x64 and 7x10"]),
    "a frozen layer": (*model("frozen"), ["model.name", "frozen parameter layer.bias"]),
    "an idle layer": (*model("Spare"), ["model.name", "spare.weight"]),
    "a buffer": (*model("Buffered"), ["model.name", "buffer mean"]),
    "no parameters": (*model("no_parameters"), ["model.name", "no parameters"]),
    "float64": (*model("doubled"), ["model.name", "float64"]),
    "records that change": (*model("InPlace"), ["model.name", "in place"]),
    "weights that are no numbers": (*model("unset"), ["model.name", "parameter layer.weight"]),
    "scores that are no numbers": (*model("Logarithmic"), ["model.name", "scores", "not finite"]),
    "an error of the model's own": (
        *model("fails"),
        ["model.name", "of my own (own_models.py, line"],
    ),
    "no function": (*model("constant"), ["model.name", "int"]),
    "no such function": (*model("absent"), ["model.name", "absent"]),
    "a module that does not parse": (
        {"own_models.py": "def f(:\n"},
        run("model.name=own_models:f"),
        ["model.name", "SyntaxError", "own_models.py, line 1"],
    ),
    # losses
    "a mean loss": (*loss("mean"), ["model.loss", "one loss a record, (5,)"]),
    "a loss without a gradient": (*loss("hits"), ["model.loss", "no gradient"]),
    "a loss without end": (*loss("endless"), ["model.loss", "inf"]),
    "a loss of one argument": (*loss("fails"), ["model.loss", "fails() takes 1"]),
    "no such loss": (*loss("absent"), ["model.loss", "absent"]),
    "a loss without a module": (*setting("model.loss=focal"), ["model.loss", "module:function"]),
    # partitioners
    "no such scheme": (*setting("partition.scheme=even"), ["partition.scheme", "'dirichlet'"]),
    "too few devices dealt to": (*scheme("short"), ["partition.scheme", "(3,)", "a record"]),
    "halves of devices": (*scheme("halves"), ["partition.scheme", "float64", "whole number"]),
    "a device that is not there": (*scheme("beyond"), ["partition.scheme", "device 50", "0 to 49"]),
    "devices without records": (*scheme("greedy"), ["partition.scheme", "device 1 would hold no"]),
    "a split that does not repeat": (*scheme("restless"), ["partition.scheme", "the generator"]),
    "no devices dealt to": (*scheme("nothing"), ["partition.scheme", "object of shape ()"]),
    "an error of the scheme's own": (
        *scheme("fails"),
        ["partition.scheme", "IndexError", "(own_schemes.py, line 30)"],
    ),
    # data sets
    "images beyond their range": (*data("pixels"), ["dataset.name", "images[:200] ranges from"]),
    "classes without records": (*data("classes"), ["dataset.name", "n_classes = 4", "3 classes"]),
    "no test records": (*data("training"), ["dataset.name", "n_train = 300", "1 to 299"]),
    "labels in a list": (*data("listed"), ["dataset.name", "labels of type list"]),
    "arrays in place of a data set": (*data("bare"), ["dataset.name", "Dataset, not tuple"]),
    "a data set without its file": (
        *data("fails"),
        ["dataset.name", "absent.npy", "(own_data.py, line 33)"],
    ),
    "a data set of two arguments": (*data("demanding"), ["dataset.name", "'folder'"]),
    # edges
    "edges in Latin-1": (*edges(EDGES.replace("A", "Ä").encode("latin-1")), ["edges", "UTF-8"]),
    "edges with semicolons": (*edges(EDGES.replace(",", ";")), ["topology.edges", "comma"]),
    "an edge twice": (*edges(EDGES + "A,1\n"), ["topology.edges", "A,1", "twice"]),
    "a name that can't be printed": (*edges(EDGES + "B,\0\n"), ["topology.edges", "no pair"]),
    "a quote left open": (*edges(EDGES + 'B,"5\n'), ["topology.edges", "no CSV"]),
    # arrays
    "channels first": (
        *arrays(x_train=np.zeros((60, 3, 8, 8)), x_test=np.zeros((20, 3, 8, 8))),
        ["dataset.root", "channels first", "transpose(0, 2, 3, 1)"],
    ),
    "images that are not numbers": (
        *arrays(x_train=np.full((60, 8, 8), np.nan)),
        ["dataset.root", "x_train has pixels that are nan"],
    ),
    "labels that are not whole": (
        *arrays(y_train=np.arange(60) % 3 / 2),
        ["dataset.root", "y_train"],
    ),
    # studies
    "a study left open": (*study("title: [\n"), [STUDY, "line 2", "no YAML"]),
    "a study with a key twice": (*study("title: a\ntitle: b\n"), [STUDY, "title again"]),
    "a study in Latin-1": (*study("title: é\n".encode("latin-1")), [STUDY, "UTF-8"]),
    "an arm that starts with a dot": (
        *study("title: t\narms: {.a: {}}\n"),
        ["study.own.arms", "valid: a name of letters, digits"],
    ),
    "a study with an unknown key": (*study("title: t\ngird: {}\n"), ["study.own.gird", "grid"]),
    "a study misspelled": ({}, ["study", "quikstart"], ["study", "did you mean quickstart?"]),
    "a scale misspelled": ({}, ["study", "fig7", "--scale=smok"], ["--scale", "mean smoke?"]),
    "a key of --only misspelled": (
        {},
        ["study", "quickstart", "--only=algoritm=m2fdp"],
        ["--only", "did you mean algorithm?"],
    ),
    "a value of --only misspelled": (
        {},
        ["study", "quickstart", "--only=algorithm=pedfpl"],
        ["--only algorithm", "did you mean pedpfl?"],
    ),
    "a study's key misspelled": (
        *study("title: t\nparameters: {training.round: 1}\ngrid: {seed: [0]}\n"),
        ["training.round", "did you mean rounds?"],
    ),
    "a study inside an environment": (
        {},
        ["study", "quickstart", "--env=base/studies"],
        ["--env", "fashion_mnist"],
    ),
    "a study of a million cells": (
        *study(
            f"title: t\ngrid: {{seed: {list(range(1000))}, training.rounds: {[*range(1, 1001)]}}}\n"
        ),
        ["study.own.grid", "1,000,000 cells", "10,000"],
    ),
}


def spoil(project: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = project / name.removeprefix("+")
        content = content if isinstance(content, bytes) else content.encode()
        if name.startswith("+"):
            content = path.read_bytes() + b"\n" + content
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


def forget_own_code() -> None:
    for name in ("own_models", "own_losses", "own_schemes", "own_data"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_one_line_that_says_where(project, name):
    files, arguments, words = WRONG[name]
    spoil(project, files)
    forget_own_code()
    result = CliRunner().invoke(cli, arguments)
    forget_own_code()
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line.startswith("Error: ")
    assert all(word in line for word in words), line
    written = [path for path in project.glob("data/*/*/*.*") if path.name != ".lock"]
    assert not written, "nothing is written"


@pytest.mark.parametrize("kind", ["catalog", "mlflow"])
def test_without_a_file_of_conf_the_line_names_it(project, kind):
    (project / f"conf/base/{kind}.yml").unlink()
    result = CliRunner().invoke(cli, ["run"])
    line = f"Error: file = 'conf/base/{kind}.yml': no such file; git checkout brings it back\n"
    assert (result.exit_code, result.stderr) == (2, line)


def test_without_a_file_of_parameters_the_defaults_are_those_of_conf(project):
    (project / "conf/base/parameters.yml").unlink()
    params = "training.rounds=1,threads=1,topology.fanouts=2|3"
    result = CliRunner().invoke(cli, ["run", f"--params={params}"])
    assert result.exit_code == 0, result.output
    assert "seed 0, after 1 round " in result.output


@pytest.mark.parametrize("command", [["run"], ["study", "quickstart"]])
def test_a_link_to_nowhere_in_a_folders_place_is_one_line(project, command):
    (project / "data/08_reporting").symlink_to("nowhere")
    result = CliRunner().invoke(cli, command)
    line = "Error: folder = 'data/08_reporting': is a link to nowhere, which is not there; "
    assert (result.exit_code, result.stderr) == (2, f"{line}move it away\n")


def test_there_are_sixty_of_them():
    assert len(WRONG) >= 60


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["-m", "m2fdp"], ["conf/base/parameters_data.yml, line", "no YAML"]),
        (
            ["-m", "kedro", "study", "quickstart"],
            ["conf/base/parameters_data.yml, line", "no YAML"],
        ),
    ],
)
def test_a_command_of_its_own_ends_in_one_line_too(project, command, words):
    spoil(project, {f"+{DATA}": "x: [1,\n"})
    result = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        timeout=60,  # of a busy machine: nearly all of it is imports
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words)


def warned(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_what_is_allowed_and_seldom_meant_is_warned_of(project, kedro_run, caplog):
    result = kedro_run(
        "--params=threads=1,training.rounds=1,topology.fanouts=2|3,partition.labels_per_device=5,"
        "training.local_aggregation.1=9,training.batch_size=100000,training.learning_rate=1e9"
    )
    assert result.exit_code == 0, result.output
    text = "\n".join(warned(caplog))
    assert "training.local_aggregation.1 = 9: never comes" in text
    assert "training.batch_size = 100000 is more than any device's records" in text
    assert "training diverged" in text
    assert "choose a smaller training.learning_rate" in text


def test_control_at_the_papers_step_size_is_warned_of(project, kedro_run, caplog):
    result = kedro_run(
        "--params=threads=1,training.rounds=2,control.enabled=true,control.gap=papers,"
        "control.smoothness=estimated"
    )
    assert result.exit_code == 0, result.output
    assert any("control.step_size_factor = 1 is J's own" in line for line in warned(caplog))
