"""A trained model that others load: a folder with its weights and what is needed to build it.

MLflow's pyfunc loads such a folder through `_load_pyfunc`; torch and this library are all that it
needs, no part of Kedro's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from m2fdp.config import ModelConfig, parse_block
from m2fdp.models.checks import Shape
from m2fdp.models.registry import build_model

WEIGHTS, DESCRIPTION = "model.pt", "model.json"


@dataclass(frozen=True, eq=False)
class Served:
    """A model that labels records.

    Attributes:
        module: maps inputs (n, C, H, W) to scores (n, classes).
        shape: (C, H, W) of one input.
    """

    module: nn.Module
    shape: Shape

    def predict(self, data: Any, params: Mapping[str, Any] | None = None) -> np.ndarray:
        """Scores, float32 (n, classes), of which the largest is the label's.

        Args:
            data: inputs as the model was trained on, in [0, 1] where they are images: (n, C, H, W),
                or anything that becomes that, such as a table with a column a number.
            params: none are known.
        """
        inputs = np.array(data, dtype=np.float32).reshape(-1, *self.shape)
        with torch.inference_mode():
            return self.module(torch.from_numpy(inputs)).numpy()


def write_model(
    folder: Path,
    config: ModelConfig,
    shape: Shape,
    n_classes: int,
    state_dict: Mapping[str, Tensor],
) -> None:
    """Write what `_load_pyfunc` reads into a folder that is there.

    Args:
        shape: (C, H, W) of one input.
        state_dict: the parameters by name.
    """
    about = {
        "model": config.model_dump(mode="json"),
        "shape": list(shape),
        "n_classes": n_classes,
    }
    (folder / DESCRIPTION).write_text(json.dumps(about, indent=2))
    weights = {name: tensor.detach().cpu().clone() for name, tensor in state_dict.items()}
    torch.save(weights, folder / WEIGHTS)


def _load_pyfunc(path: str) -> Served:
    """The model of a folder; the name is MLflow's."""
    folder = Path(path)
    about = json.loads((folder / DESCRIPTION).read_text())
    config = parse_block(ModelConfig, about["model"], "model")
    channels, height, width = about["shape"]
    shape = (channels, height, width)
    module = build_model(config, shape, about["n_classes"], seed=0).module
    state = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
    module.load_state_dict(state)
    return Served(module.eval(), shape)
