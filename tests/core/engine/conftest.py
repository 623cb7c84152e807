"""The model of most simulations."""

import pytest

from m2fdp.core.config import ModelConfig
from m2fdp.core.models.registry import build_model


@pytest.fixture
def softmax():
    return build_model(ModelConfig(name="softmax"), (1, 8, 8), 10, seed=0)
