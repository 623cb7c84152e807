"""A trained model that others load: a folder with its weights and what is needed to build it.

What is built follows from the weights' names, too: a model that was trained in tiers has heads
beside its chain of modules, and FedGKT's has every client's own network.

MLflow's pyfunc loads such a folder through `_load_pyfunc`; torch and this library are all that it
needs, no part of Kedro's.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.checks import Shape
from m2fdp.core.models.registry import Model, build_model
from m2fdp.features.config import FeaturesConfig
from m2fdp.features.recipe import input_shape, map_images
from m2fdp.given.loading import parse_block
from m2fdp.nets import SPLIT_MODELS
from m2fdp.tables.rows import RowMap
from m2fdp.tiers.split_models import build_split_model
from m2fdp.tiers.transfer import TransferModel, build_transfer_model

WEIGHTS, DESCRIPTION = "model.pt", "model.json"


@dataclass(frozen=True, eq=False)
class Served:
    """A model that labels records, and its weights (M,)."""

    model: Model
    weights: Tensor
    shape: Shape
    rows: RowMap | None = None
    features: FeaturesConfig | None = None

    def predict(
        self, data: Any, params: Mapping[str, Any] | None = None
    ) -> np.ndarray | pd.DataFrame:
        """Scores, float32 (n, classes), of which the largest is the label's. Of a table's rows the
        class's name, and a column a class with its chance.

        FedGKT has a model for each client: theirs are in the mean.

        Args:
            data: images (n, C, H, W) in [0, 1], or anything that becomes that, such as a table
                with a column a number. Of a model of tables rows with the columns of its schema.
            params: `folder`, where files of pictures lie that rows name; the current one without.
        """
        folder = Path((params or {}).get("folder", ""))
        made = data if self.rows is None else self.rows.inputs(pd.DataFrame(data), folder)
        inputs = torch.from_numpy(np.array(made, dtype=np.float32).reshape(-1, *self.shape))
        # Of its records in a row each is scored by the next client.
        clients = self.model.n_clients if isinstance(self.model, TransferModel) else 1
        with torch.inference_mode():
            if self.features is not None:
                inputs = map_images(inputs, self.features)
            scores = self.model.scores(self.weights, inputs.repeat_interleave(clients, dim=0))
        mean: np.ndarray = scores.unflatten(0, (len(inputs), clients)).mean(1).numpy()
        return mean if self.rows is None else self.rows.answers(mean)


def write_model(
    folder: Path,
    config: ModelConfig,
    shape: Shape,
    n_classes: int,
    state_dict: Mapping[str, Tensor],
    rows: RowMap | None = None,
    features: FeaturesConfig | None = None,
) -> None:
    """Write what `_load_pyfunc` reads, parameters by name, into a folder that is there.

    Args:
        config: the block `model`.
        shape: (C, H, W) of an image, or of a row.
        n_classes: how many scores the model gives.
        state_dict: the parameters by name.
        rows: how rows of a table become inputs; None = records are images.
        features: what the model is given in the place of images; None = the images.
    """
    about = {"model": config.model_dump(mode="json"), "shape": list(shape), "n_classes": n_classes}
    about |= {"rows": rows.content} if rows is not None else {}
    about |= {"features": features.model_dump(mode="json")} if features is not None else {}
    (folder / DESCRIPTION).write_text(json.dumps(about, indent=2), encoding="utf-8")
    weights = {name: tensor.detach().cpu().clone() for name, tensor in state_dict.items()}
    torch.save(weights, folder / WEIGHTS)


def _load_pyfunc(path: str) -> Served:
    """The model of a folder; the name is MLflow's."""
    return read_model(Path(path))


def read_model(folder: Path) -> Served:
    """The model of a folder.

    Raises:
        ValueError: the weights are those of another model than the folder describes.
    """
    about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    config = parse_block(ModelConfig, about["model"], "model")
    channels, height, width = about["shape"]
    shape = (channels, height, width)
    state = torch.load(folder / WEIGHTS, map_location="cpu", weights_only=True)
    features = None
    if "features" in about:
        features = parse_block(FeaturesConfig, about["features"], "features")
    of_model = shape if features is None else input_shape(features, shape)
    model = _model_of(config, of_model, about["n_classes"], state)
    expected = model.unflatten(model.initial_vector())
    for name in expected.keys() | state.keys():
        if name not in state or name not in expected or state[name].shape != expected[name].shape:
            raise ValueError(f"{folder}: {name} does not fit the model that is described")
    rows = RowMap.read(about["rows"]) if "rows" in about else None
    weights = torch.cat([state[name].flatten() for name in expected])
    return Served(model, weights, shape, rows, features)


def _model_of(config: ModelConfig, shape: Shape, n_classes: int, names: Iterable[str]) -> Model:
    """The model whose weights have these names; its own weights don't matter."""
    places = {tuple(name.split(".")[:2]) for name in names}
    clients = {number for place, number in places if place == "clients"}
    tiers = sorted(int(number) for place, number in places if place == "heads")
    in_tiers = config.name in SPLIT_MODELS and any(place == "chain" for place, _ in places)
    if config.name in SPLIT_MODELS and clients:
        return build_transfer_model(config, shape, n_classes, 0, len(clients))
    if in_tiers:
        return build_split_model(config, shape, n_classes, 0, tiers)
    return build_model(config, shape, n_classes, 0)
