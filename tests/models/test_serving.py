"""Models as folders: they predict what was trained, with the library alone."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from m2fdp.config import ModelConfig
from m2fdp.models.registry import build_model
from m2fdp.models.serving import _load_pyfunc, write_model


@pytest.mark.parametrize("name", ["softmax", "svm", "cnn12"])
def test_a_model_that_is_loaded_scores_as_the_one_that_was_written(tmp_path, name):
    shape, config = (1, 8, 8), ModelConfig(name=name)
    model = build_model(config, shape, 10, seed=1)
    vector = torch.linspace(-1, 1, model.n_parameters)
    write_model(tmp_path, config, shape, 10, model.unflatten(vector))
    inputs = np.random.default_rng(0).random((5, *shape), dtype=np.float32)
    expected = model.scores(vector, torch.from_numpy(inputs)).detach().numpy()
    served = _load_pyfunc(str(tmp_path))
    np.testing.assert_allclose(served.predict(inputs), expected, rtol=1e-6)
    table = pd.DataFrame(inputs.reshape(5, -1))
    np.testing.assert_allclose(served.predict(table), expected, rtol=1e-6)


def test_weights_of_another_model_are_refused(tmp_path):
    config = ModelConfig(name="softmax")
    state = build_model(config, (1, 8, 8), 10, seed=1)
    write_model(tmp_path, config, (1, 8, 8), 10, state.module.state_dict())
    about = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(about | {"n_classes": 3}))
    with pytest.raises(RuntimeError, match="size mismatch"):
        _load_pyfunc(str(tmp_path))


def test_loading_needs_neither_kedro_nor_mlflow(tmp_path):
    config = ModelConfig(name="softmax")
    model = build_model(config, (1, 2, 2), 3, seed=1)
    write_model(tmp_path, config, (1, 2, 2), 3, model.module.state_dict())
    code = (
        "import sys; from m2fdp.models.serving import _load_pyfunc; "
        f"print(_load_pyfunc({str(tmp_path)!r}).predict([[1, 2, 3, 4]]).shape, "
        "{'kedro', 'mlflow', 'ray'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(1, 3) set()\n"
