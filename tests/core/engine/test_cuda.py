"""The same code on a GPU; skipped where there is none."""

import pytest
import torch
from tests.core.engine.parts import make_shards, mechanism_for, plan_of, run_plan, schedule

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.execution import set_exact_arithmetic
from m2fdp.core.engine.minibatches import Shards
from m2fdp.core.models.registry import build_model
from m2fdp.core.topology.builders import tree_from_fanouts
from m2fdp.core.topology.trust import draw_trust

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device, and this machine has none"
)


@pytest.fixture(autouse=True)
def exact() -> None:
    """As every run: TF32 would round products more coarsely than a CPU does."""
    set_exact_arithmetic()


@pytest.mark.parametrize("name", ["softmax", "cnn12"])
@pytest.mark.parametrize("algorithm", ["hfl", "hfl_dp", "m2fdp"])
def test_a_gpu_computes_what_the_cpu_computes_and_repeats_it(name, algorithm):
    """With the same noise, up to the rounding of float32."""
    tree = tree_from_fanouts([4, 3])
    shards = make_shards([20, 90] * 6, rate=0.5)
    model = build_model(ModelConfig(name=name), (1, 8, 8), 10, seed=0)
    plan = plan_of(algorithm, tree, draw_trust(tree, [0.5], 0), schedule(2, 3, {1: 2}))
    parts = plan, mechanism_for(plan, shards), model
    cuda = Shards(shards.features.cuda(), shards.labels.cuda(), shards.sizes, shards.rates)
    moved = run_plan(*parts, cuda)
    torch.testing.assert_close(moved.cpu(), run_plan(*parts, shards), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(moved, run_plan(*parts, cuda), rtol=1e-5, atol=1e-7)
