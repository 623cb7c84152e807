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


# A case: files of the project ("+" appends to what is there), the command, words of the line.


def put(file, content, *words, command=("run",)):
    return {file: content}, [*command], words


def command(arguments, *words):
    return {}, arguments, words


def setting(params, *words):
    return command(run(params), *words)


def model(function, *words):
    params = f"model.name=own_models:{function}"
    return put("own_models.py", OWN_MODELS, "model.name", *words, command=run(params))


def loss(function, *words):
    params = f"model.name=softmax,model.loss=own_losses:{function}"
    return put("own_losses.py", OWN_LOSSES, "model.loss", *words, command=run(params))


def scheme(function, *words):
    params = f"partition.scheme=own_schemes:{function}"
    return put("own_schemes.py", OWN_SCHEMES, "partition.scheme", *words, command=run(params))


def data(function, *words):
    params = f"dataset.name=own_data:{function}"
    return put("own_data.py", OWN_DATA, "dataset.name", *words, command=run(params))


def edges(content, *words):
    return put("e.csv", content, *words, command=run(BY_EDGES))


def study(content, *words):
    return put(STUDY, content, *words, command=["study", "own"])


def arrays(*words, **changes):
    rng = np.random.default_rng(0)
    content = {"x_train": rng.random((60, 8, 8)), "x_test": rng.random((20, 8, 8))}
    content |= {"y_train": np.arange(60) % 3, "y_test": np.arange(20) % 3} | changes
    file = io.BytesIO()
    np.savez(file, **content)
    return put("x.npz", file.getvalue(), *words, command=run(BY_ARRAYS))


WRONG = {
    # conf/
    "a bracket left open": put(f"+{DATA}", "x: [1,\n", DATA, "line", "no YAML"),
    "a tab": put(f"+{DATA}", "x:\n\ty: 1\n", DATA, r"\ty: 1", "no YAML"),
    "a key twice": put(f"+{DATA}", "dataset:\n  name: mnist\n", DATA, "dataset again"),
    "a key in two files": put("conf/base/parameters_x.yml", "seed: 1\n", "seed", "_x.yml"),
    "a list at the top": put(LOCAL, "- 1\n", LOCAL, "a list"),
    "a word at the top": put(LOCAL, "hello\n", LOCAL, "a plain value"),
    "two documents": put(LOCAL, "seed: 1\n---\nseed: 2\n", LOCAL, "line 2"),
    "an unknown tag": put(LOCAL, "seed: !other 1\n", LOCAL, "line 1", "!other"),
    "Latin-1": put(LOCAL, "a: é\n".encode("latin-1"), LOCAL, "UTF-8"),
    "an unknown resolver": put(LOCAL, "seed: ${nope:1}\n", f"{LOCAL}, line 1: seed", "nope"),
    "a reference to nowhere": put(LOCAL, "seed: ${nope}\n", f"{LOCAL}, line 1: seed", "nope"),
    "a list over a block": put(LOCAL, "training: [1]\n", f"{LOCAL}, line 1: training"),
    "broken globals": put("conf/base/globals.yml", "a: [\n", "conf/base/globals.yml"),
    "broken credentials": put("conf/local/credentials.yml", "a: [\n", "credentials.yml"),
    "a catalog twice": put(
        "+conf/base/catalog.yml",
        "model:\n  type: MemoryDataset\n",
        "conf/base/catalog.yml",
        "model again",
    ),
    "an unknown type of dataset": put(
        CATALOG, "model:\n  type: nope.Nope\n", f"{CATALOG}, line 1: model", "nope.Nope"
    ),
    "a dataset without a file": put(
        CATALOG,
        "model:\n  type: m2fdp.pipelines.datasets.TableDataset\n",
        f"{CATALOG}, line 1: model",
        "filepath",
    ),
    "a dataset that is a number": put(CATALOG, "model: 5\n", f"{CATALOG}, line 1: model"),
    "a manifest in memory": put(
        CATALOG, "manifest:\n  type: MemoryDataset\n", "catalog.yml", "manifest.dataset.filepath"
    ),
    "an unknown key of mlflow.yml": put(
        "conf/local/mlflow.yml",
        "tracking:\n  run:\n    nam: x\n",
        "conf/local/mlflow.yml, line 3: tracking.run.nam",
    ),
    "mlflow.yml that does not parse": put(
        "conf/local/mlflow.yml", "tracking: [\n", "conf/local/mlflow.yml", "no YAML"
    ),
    "an environment inside another": command(
        ["run", "--env=base/studies"], "--env", "fashion_mnist"
    ),
    "an environment misspelled": command(["run", "--env=fmnist"], "--env", "mean mnist?"),
    "an environment outside": command(["run", "--env=../conf/mnist"], "--env", "fashion_mnist"),
    "a store in files": put(
        "conf/local/mlflow.yml",
        "server:\n  mlflow_tracking_uri: mlruns\n",
        "conf/local/mlflow.yml, line 2: server.mlflow_tracking_uri",
        "maintenance mode",
    ),
    "--config left open": put(
        "c.yml", "run: [", "c.yml", "no YAML", command=["run", "--config=c.yml"]
    ),
    "--config with a list": put(
        "c.yml", "- 1", "c.yml", "a list", command=["run", "--config=c.yml"]
    ),
    "--config with a word": put(
        "c.yml", "run: x", "c.yml", "'x'", command=["run", "--config=c.yml"]
    ),
    "--config with an unknown option": put(
        "c.yml",
        "run: {pipelins: x}",
        "c.yml",
        "did you mean pipelines?",
        command=["run", "--config=c.yml"],
    ),
    # --params
    "no value": setting("seed", "--params", "KEY=VALUE"),
    "an empty text": setting("features.folder=''", "features.folder = ''", "at least 1"),
    "a block and its key": setting(
        "training=2,training.rounds=1",
        "--params = 'training'",
        "is set and training.rounds as well",
    ),
    "a value left open": setting("training.rounds=[1", "--params", "no YAML"),
    "a list without brackets": setting(
        "seed=1,topology.fanouts=10, 5", "--params", "lists in brackets: topology.fanouts=[10,5]"
    ),
    "a block that is open": setting(
        "training.local_aggregation={1: 5, 2: 3",
        "--params = 'training.local_aggregation={1: 5, 2: 3'",
        "no YAML",
    ),
    "an octal number": setting("seed=0o10", "seed = '0o10'", "integer"),
    "a number of base 60": setting("seed=1:30", "seed = '1:30'", "integer"),
    # conf/
    "a file of parameters with a slip": put(
        "conf/local/paramters.yml",
        "seed: 1",
        "'conf/local/paramters.yml': nothing reads it",
        "did you mean parameters.yml?",
    ),
    "a file that is named as a block": put(
        "conf/local/privacy.yml",
        "privacy: {epsilon: 1}",
        "'conf/local/privacy.yml': nothing reads it",
        "did you mean parameters_privacy.yml?",
    ),
    "an environment with a slip": put(
        "conf/mydata/parameter.yml",
        "seed: 1",
        "'conf/mydata/parameter.yml': nothing reads it",
        "did you mean parameters.yml?",
        command=["run", "--env=mydata"],
    ),
    "a file of another kind": put(
        "conf/local/parameters.toml",
        "seed = 1",
        "'conf/local/parameters.toml': nothing reads it",
        "did you mean parameters.yml?",
    ),
    "parameters beside the environments": put(
        "conf/parameters.yml",
        "seed: 1",
        "'conf/parameters.yml': nothing reads it there; move it to conf/local",
    ),
    "a study over a file with a slip": put(
        "conf/base/paramters.yml",
        "seed: 1",
        "'conf/base/paramters.yml': nothing reads it",
        command=["study", "fig7"],
    ),
    "a value that refers to nowhere": setting("seed=${nope}", "--params seed", "nope"),
    "a list for a block": setting("training=[1]", "--params training"),
    "a word for a number": setting("training.rounds=many", "training.rounds", "integer"),
    "yes for a number": setting("training.rounds=yes", "training.rounds"),
    "not a number": setting("training.learning_rate=.nan", "training.learning_rate", "finite"),
    "an infinite power": setting("resources.wired_power_dbm=.inf", "resources.wired_power_dbm"),
    "beyond float32": setting("privacy.clipping_norm=1e300", "privacy.clipping_norm"),
    "next to nothing": setting("privacy.epsilon=1e-300", "privacy.epsilon"),
    "a billion rounds": setting("training.rounds=1000000000", "rounds x local_steps"),
    "a billion devices": setting("topology.fanouts=1000000000|2", "topology.fanouts", "nodes"),
    "no devices": setting("topology.fanouts=0", "topology.fanouts"),
    "more participants than devices": setting(
        "training.participants=6", "training.participants", "at most 5"
    ),
    "a cell outside": setting("cell=../x", "cell"),
    "a cell without end": setting("cell=" + "a" * 300, "cell"),
    "no such data set": setting("dataset.name=cifar", "dataset.name", "cifar10"),
    "an algorithm misspelled": setting("algorithm=mf2dp", "algorithm", "mean m2fdp?"),
    "a key of another block": setting("epsilon=1", "epsilon", "mean privacy.epsilon?"),
    "a pipeline misspelled": command(["run", "--pipelines=audti"], "--pipelines", "mean audit?"),
    "no such file": setting("dataset.name=npz,dataset.root=no.npz", "dataset.root", "no.npz"),
    # models
    "a model of one argument": model("one_argument", "one_argument() takes 1"),
    "no model": model("nothing", "NoneType"),
    "too few outputs": model("too_few", "(3, 9)", "(3, 10)"),
    "two outputs": model("Pair", "tuple"),
    "another input size": model("wrong_size", "(1, 8, 8)", "3x64 and 7x10"),
    "a frozen layer": model("frozen", "frozen parameter layer.bias"),
    "an idle layer": model("Spare", "spare.weight"),
    "a buffer": model("Buffered", "buffer mean"),
    "no parameters": model("no_parameters", "no parameters"),
    "float64": model("doubled", "float64"),
    "records that change": model("InPlace", "in place"),
    "weights that are no numbers": model("unset", "parameter layer.weight"),
    "scores that are no numbers": model("Logarithmic", "scores", "not finite"),
    "an error of the model's own": model("fails", "of my own (own_models.py, line"),
    "no function": model("constant", "int"),
    "no such function": model("absent", "absent"),
    "a module that does not parse": put(
        "own_models.py",
        "def f(:\n",
        "model.name",
        "SyntaxError",
        "own_models.py, line 1",
        command=run("model.name=own_models:f"),
    ),
    # losses
    "a mean loss": loss("mean", "one loss a record, (5,)"),
    "a loss without a gradient": loss("hits", "no gradient"),
    "a loss without end": loss("endless", "inf"),
    "a loss of one argument": loss("fails", "fails() takes 1"),
    "no such loss": loss("absent", "absent"),
    "a loss without a module": setting("model.loss=focal", "model.loss", "module:function"),
    # partitioners
    "no such scheme": setting("partition.scheme=even", "partition.scheme", "'dirichlet'"),
    "too few devices dealt to": scheme("short", "(3,)", "a record"),
    "halves of devices": scheme("halves", "float64", "whole number"),
    "a device that is not there": scheme("beyond", "device 50", "0 to 49"),
    "devices without records": scheme("greedy", "device 1 would hold no"),
    "a split that does not repeat": scheme("restless", "the generator"),
    "no devices dealt to": scheme("nothing", "object of shape ()"),
    "an error of the scheme's own": scheme("fails", "IndexError", "(own_schemes.py, line 23)"),
    # data sets
    "images beyond their range": data("pixels", "images[:200] ranges from"),
    "classes without records": data("classes", "n_classes = 4", "3 classes"),
    "no test records": data("training", "n_train = 300", "1 to 299"),
    "labels in a list": data("listed", "labels of type list"),
    "arrays in place of a data set": data("bare", "Dataset, not tuple"),
    "a data set without its file": data("fails", "absent.npy", "(own_data.py, line 26)"),
    "a data set of two arguments": data("demanding", "'folder'"),
    # edges
    "edges in Latin-1": edges(EDGES.replace("A", "Ä").encode("latin-1"), "edges", "UTF-8"),
    "edges with semicolons": edges(EDGES.replace(",", ";"), "topology.edges", "comma"),
    "an edge twice": edges(EDGES + "A,1\n", "topology.edges", "A,1", "twice"),
    "a name that can't be printed": edges(EDGES + "B,\0\n", "topology.edges", "no pair"),
    "a quote left open": edges(EDGES + 'B,"5\n', "topology.edges", "no CSV"),
    # arrays
    "channels first": arrays(
        "dataset.root",
        "channels first",
        "transpose(0, 2, 3, 1)",
        x_train=np.zeros((60, 3, 8, 8)),
        x_test=np.zeros((20, 3, 8, 8)),
    ),
    "images that are not numbers": arrays(
        "dataset.root", "x_train has pixels that are nan", x_train=np.full((60, 8, 8), np.nan)
    ),
    "labels that are not whole": arrays("dataset.root", "y_train", y_train=np.arange(60) % 3 / 2),
    # studies
    "a study left open": study("title: [\n", STUDY, "line 2", "no YAML"),
    "a study with a key twice": study("title: a\ntitle: b\n", STUDY, "title again"),
    "a study in Latin-1": study("title: é\n".encode("latin-1"), STUDY, "UTF-8"),
    "an arm that starts with a dot": study(
        "title: t\narms: {.a: {}}\n", "study.own.arms", "valid: a name of letters, digits"
    ),
    "a study with an unknown key": study("title: t\ngird: {}\n", "study.own.gird", "grid"),
    "a study misspelled": command(["study", "quikstart"], "study", "did you mean quickstart?"),
    "a scale misspelled": command(["study", "fig7", "--scale=smok"], "--scale", "mean smoke?"),
    "a key of --only misspelled": command(
        ["study", "quickstart", "--only=algoritm=m2fdp"], "--only", "did you mean algorithm?"
    ),
    "a value of --only misspelled": command(
        ["study", "quickstart", "--only=algorithm=pedfpl"],
        "--only algorithm",
        "did you mean pedpfl?",
    ),
    "a study's key misspelled": study(
        "title: t\nparameters: {training.round: 1}\ngrid: {seed: [0]}\n",
        "training.round",
        "did you mean rounds?",
    ),
    "a study inside an environment": command(
        ["study", "quickstart", "--env=base/studies"], "--env", "fashion_mnist"
    ),
    "a study of a million cells": study(
        f"title: t\ngrid: {{seed: {list(range(1000))}, training.rounds: {[*range(1, 1001)]}}}\n",
        "study.own.grid",
        "1,000,000 cells",
        "10,000",
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
