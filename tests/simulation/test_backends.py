"""The fast backends against the plain one, and against autograd by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from m2fdp.config import ModelConfig
from m2fdp.models.registry import build_model
from m2fdp.simulation.backends import Minibatches, ReferenceBackend, build_backend, clip_factor

MODELS = [
    ModelConfig(name="softmax"),
    ModelConfig(name="svm"),
    ModelConfig(name="svm", hinge="crammer_singer"),
    ModelConfig(name="cnn12", channels=[2, 3, 4]),
]


def problem(config, n, width, seed):
    model = build_model(config, (1, 8, 8), 5, seed=0)
    model.module.double()
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(n, model.n_parameters, generator=generator, dtype=torch.float64)
    batches = Minibatches(
        torch.rand(n, width, 1, 8, 8, generator=generator, dtype=torch.float64),
        torch.randint(5, (n, width), generator=generator),
        torch.rand(n, width, generator=generator) < 0.7,
    )
    return model, weights, batches


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 7), st.integers(0, 99), st.sampled_from([None, 0.1]))
def test_stacked_equals_reference(config, n, seed, clipping_norm):
    model, weights, batches = problem(config, n, 8, seed)
    stacked = build_backend(model, "stacked").gradient_sums(weights, batches, clipping_norm)
    plain = ReferenceBackend(model).gradient_sums(weights, batches, clipping_norm)
    torch.testing.assert_close(stacked, plain, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("config", MODELS, ids=lambda config: f"{config.name}-{config.hinge}")
def test_a_clipped_record_has_at_most_the_clipping_norm(config):
    model, weights, batches = problem(config, 3, 8, seed=1)
    one = Minibatches(batches.features[:, :1], batches.labels[:, :1], torch.ones(3, 1).bool())
    backend = build_backend(model, "stacked")
    free = backend.gradient_sums(weights, one, None)
    norm = float(free.norm(dim=1).min()) / 2
    clipped = backend.gradient_sums(weights, one, norm)
    torch.testing.assert_close(clipped.norm(dim=1), torch.full((3,), norm).double())
    torch.testing.assert_close(clipped, free * norm / free.norm(dim=1, keepdim=True))


def test_an_empty_minibatch_has_no_gradient():
    model, weights, batches = problem(MODELS[0], 2, 8, seed=0)
    nothing = Minibatches(batches.features, batches.labels, torch.zeros_like(batches.mask))
    assert not build_backend(model, "stacked").gradient_sums(weights, nothing, 1.0).any()


def test_clip_factor_by_hand():
    norms = torch.tensor([0.0, 0.5, 2.0])
    assert clip_factor(norms, 1.0).tolist() == [1.0, 1.0, 0.5]
