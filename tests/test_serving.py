"""Models as folders: they predict what was trained, with the library alone."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.registry import build_model, unflattened
from m2fdp.serving import _load_pyfunc, write_model
from m2fdp.tiers.split_models import build_split_model, trained_tensors
from m2fdp.tiers.transfer import build_transfer_model

SHAPE = (1, 8, 8)


def written_and_loaded(folder, config, model, vector):
    """A model as it is served, inputs (5, *SHAPE), and the scores that it gave them before."""
    write_model(folder, config, SHAPE, 10, model.unflatten(vector))
    inputs = np.random.default_rng(0).random((5, *SHAPE), dtype=np.float32)
    scores = model.scores(vector, torch.from_numpy(inputs)).detach().numpy()
    return _load_pyfunc(str(folder)), inputs, scores


@pytest.mark.parametrize("name", ["softmax", "svm", "cnn12"])
def test_a_model_that_is_loaded_scores_as_the_one_that_was_written(tmp_path, name):
    config = ModelConfig(name=name)
    model = build_model(config, SHAPE, 10, seed=1)
    vector = torch.linspace(-1, 1, model.n_parameters)
    served, inputs, expected = written_and_loaded(tmp_path, config, model, vector)
    np.testing.assert_allclose(served.predict(inputs), expected, rtol=1e-6)
    table = pd.DataFrame(inputs.reshape(5, -1))
    np.testing.assert_allclose(served.predict(table), expected, rtol=1e-6)


def test_weights_of_another_model_are_refused(tmp_path):
    config = ModelConfig(name="softmax")
    state = build_model(config, (1, 8, 8), 10, seed=1)
    write_model(tmp_path, config, (1, 8, 8), 10, state.module.state_dict())
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"n_classes": 3}))
    with pytest.raises(ValueError, match="weight does not fit the model"):
        _load_pyfunc(str(tmp_path))


@pytest.mark.parametrize("tiers", [(), (1, 4, 7)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_model_that_was_trained_in_tiers_is_served_whole(tmp_path, tiers, norm):
    config = ModelConfig(name="resnet", depth=20, width=2, norm=norm)
    model = build_split_model(config, SHAPE, 10, 1, tiers)
    vector = model.initial_vector() + torch.linspace(0, 0.1, model.n_parameters)
    served, inputs, expected = written_and_loaded(tmp_path, config, model, vector)
    np.testing.assert_array_equal(served.predict(inputs), expected)


def test_fedgkts_clients_are_served_in_the_mean(tmp_path):
    shape, config = (1, 8, 8), ModelConfig(name="cnn12", channels=(2, 3, 4))
    model = build_transfer_model(config, shape, 10, 1, n_clients=3)
    vector = model.initial_vector() + torch.linspace(0, 0.1, model.n_parameters)
    write_model(tmp_path, config, shape, 10, model.unflatten(vector))
    inputs = torch.rand(4, *shape, generator=torch.Generator().manual_seed(0))
    server = unflattened(trained_tensors(model.server), vector[model.server_place])
    by_client = []
    for client in range(3):
        numbers = vector[model.client_place(client)]
        client_tensors = unflattened(trained_tensors(model.client), numbers)
        sent, _ = torch.func.functional_call(model.client, client_tensors, (inputs,))
        by_client.append(torch.func.functional_call(model.server, server, (sent,)))
    served = _load_pyfunc(str(tmp_path)).predict(inputs.numpy())
    np.testing.assert_allclose(
        served, torch.stack(by_client).mean(0).detach().numpy(), rtol=1e-5, atol=1e-6
    )
    assert float((by_client[0] - by_client[2]).abs().max()) > 1e-3


def test_loading_needs_neither_kedro_nor_mlflow(tmp_path):
    config = ModelConfig(name="softmax")
    model = build_model(config, (1, 2, 2), 3, seed=1)
    write_model(tmp_path, config, (1, 2, 2), 3, model.module.state_dict())
    code = (
        "import sys; from m2fdp.serving import _load_pyfunc; "
        f"print(_load_pyfunc({str(tmp_path)!r}).predict([[1, 2, 3, 4]]).shape, "
        "{'kedro', 'mlflow', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 3) set()\n"
