"""The fast backends against the plain one, and against autograd by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.models.test_registry import SEQUENCES, Rows
from torch import nn

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.backends import ReferenceBackend, build_backend, padded_width
from m2fdp.core.engine.chains import build_chain
from m2fdp.core.engine.clipping import clip_factors
from m2fdp.core.engine.minibatches import Minibatches
from m2fdp.core.engine.rules import flat_clip
from m2fdp.core.models import losses
from m2fdp.core.models.registry import Model, build_model
from m2fdp.core.privacy.mechanisms import Clipping
from m2fdp.own.models import OneByOne

CONFIGS = {
    "softmax": ModelConfig(name="softmax"),
    "logistic": ModelConfig(name="logistic"),
    "svm": ModelConfig(name="svm"),
    "crammer_singer": ModelConfig(name="svm", hinge="crammer_singer"),
    "cnn12": ModelConfig(name="cnn12", channels=[2, 3, 4]),
}
CPU = torch.device("cpu")
N_CLASSES = 5


class Odd(nn.Module):
    """A layer called twice, parameters outside any layer or tied, and an output changed in
    place."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(64, 6), nn.Linear(6, N_CLASSES, bias=False)
        self.middle = nn.Linear(6, 6)
        if kind == "free parameter":
            self.scale = nn.Parameter(torch.full((6,), 1.5))
        if kind == "own, rows":
            self.flat = nn.Linear(3, 2)
        if kind == "tied":
            self.second = nn.Linear(6, 6)
            self.second.weight = self.middle.weight

    def forward(self, features):
        hidden = self.first(features.flatten(1))
        if self.kind == "in place":
            hidden.relu_()
        hidden = torch.tanh(self.middle(hidden))
        if self.kind == "own, rows":  # a layer that sees a record's numbers as so many rows
            hidden = hidden * self.flat(hidden.reshape(-1, 3)).reshape(-1, 4).sum(1, keepdim=True)
        if self.kind == "own, weight used outside":
            hidden = nn.functional.linear(hidden, self.middle.weight)
        if self.kind == "own, mixing many" and len(features) > 8:
            hidden = hidden - hidden.mean(0)
        if self.kind == "twice":
            hidden = torch.tanh(self.middle(hidden))
        if self.kind == "tied":
            hidden = torch.tanh(self.second(hidden))
        if self.kind == "free parameter":
            hidden = hidden * self.scale
        return self.last(hidden)


class Tokens(nn.Module):
    """A linear layer applied to a sequence, and a convolution with stride and dilation."""

    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(8, 3)
        self.convolution = nn.Conv2d(1, 2, (3, 2), stride=(2, 1), padding=1, dilation=(1, 2))
        self.last = nn.Linear(24 + 64, N_CLASSES)

    def forward(self, features):
        rows = torch.tanh(self.rows(features[:, 0])).flatten(1)
        return self.last(torch.cat([rows, self.convolution(features).flatten(1)], dim=1))


def models(name):
    if CONFIGS.get(name) is not None:
        return build_model(CONFIGS[name], (1, 8, 8), N_CLASSES, seed=0)
    torch.manual_seed(0)
    is_own, kind = name.startswith("own"), name.removeprefix("own ")
    if kind == "chain":
        module = nn.Sequential(
            *(nn.Linear(8, 6), nn.Tanh(), nn.Conv2d(1, 2, (3, 2), stride=(2, 1), padding=1)),
            *(nn.ReLU(), nn.MaxPool2d(3, 2, padding=1, ceil_mode=True), nn.Conv2d(2, 3, 2)),
            nn.Sequential(nn.Sigmoid(), nn.Flatten(), nn.Linear(18, 7, bias=False), nn.ReLU()),
            nn.Linear(7, N_CLASSES),
        )
    elif kind in ["LSTM", *VECTORISED]:
        module = Rows(SEQUENCES[kind](), N_CLASSES)
    else:
        module = Tokens() if kind == "tokens" else Odd(kind)
    return Model(name, module, losses.cross_entropy, linear=False, is_own=is_own)


VECTORISED = ["GRU cell", "attention", "transformer"]
ODD = ["twice", "free parameter", "tied", "in place", "plain", "tokens"]
CONFIGS["chain"] = None
OWN = [
    "own chain",
    *(f"own {kind}" for kind in [*ODD, *VECTORISED]),
    "own, rows",
    "own, weight used outside",
]


def problem(name, counts, seed, consecutive=False):
    """Random models and minibatches of the given sizes, in float64."""
    model = models(name)
    model.module.double()
    generator = torch.Generator().manual_seed(seed)
    n, total = len(counts), int(sum(counts))
    weights = torch.randn(n, model.n_parameters, generator=generator, dtype=torch.float64)
    rng = np.random.default_rng(seed)
    records = total + 3
    positions = np.arange(total) if consecutive else rng.permutation(records)[:total]
    batches = Minibatches(
        torch.rand(records, 1, 8, 8, generator=generator, dtype=torch.float64),
        torch.randint(N_CLASSES, (records,), generator=generator),
        np.append(positions, 0),
        np.append(rng.choice([0.0, 0.3, 1.0], total), 0.0),
        np.concatenate([[0], np.cumsum(counts)]),
        consecutive,
    )
    return model, weights, batches


def sums(backend, weights, batches, norm):
    result, clip = torch.zeros_like(weights), Clipping("drawn", norm)
    backend.add_gradients(result, 1.0, weights, batches, clip)
    return result


def fast_backends(model, counts):
    law = np.array(counts, float), np.array(counts, float) / 2
    names = ("stacked", "auto") if model.linear else ("stacked", "sequential")
    return [build_backend(model, name, law, CPU) for name in names]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([*CONFIGS, *ODD, *OWN]),
    st.lists(st.sampled_from([0, 1, 3, 9, 30]), min_size=1, max_size=5),
    st.integers(0, 99),
    st.sampled_from([None, 0.1]),
    st.booleans(),
)
def test_every_backend_equals_the_reference(name, counts, seed, clipping_norm, consecutive):
    model, weights, batches = problem(name, counts, seed, consecutive)
    plain = sums(ReferenceBackend(model), weights, batches, clipping_norm)
    for backend in fast_backends(model, counts):
        fast = sums(backend, weights, batches, clipping_norm)
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("clipping_norm", [None, 0.1])
def test_an_lstm_which_torch_vectorises_in_float32_alone(clipping_norm):
    model, weights, batches = problem("own LSTM", [3, 0, 9], 1)
    model.module.float()
    weights, features = weights.float(), batches.features.float()
    of_records = batches.weights.astype(np.float32)
    batches = replace(batches, features=features, weights=of_records)
    plain = sums(ReferenceBackend(model), weights, batches, clipping_norm)
    for backend in fast_backends(model, [3, 0, 9]):
        fast = sums(backend, weights, batches, clipping_norm)
        torch.testing.assert_close(fast, plain, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "cnn12"])
@pytest.mark.parametrize("counts", [[4, 3], [2, 40]])
def test_a_step_in_place_takes_all_gradients_at_the_old_models(name, counts):
    model, weights, batches = problem(name, counts, 3)
    expected = weights - 0.5 * sums(ReferenceBackend(model), weights, batches, 1.0)
    for backend in fast_backends(model, counts):
        moved = weights.clone()
        backend.add_gradients(moved, -0.5, moved, batches, Clipping("drawn", 1.0))
        torch.testing.assert_close(moved, expected, rtol=1e-6, atol=1e-9)


def mixing_many(scores, labels):
    """Looks at the batch from six records on."""
    shift = scores.mean(0) if len(scores) > 5 else 0.0
    return losses.cross_entropy(scores - 3 * shift * scores, labels)


@pytest.mark.parametrize(
    "model",
    [
        models("own, mixing many"),
        replace(models("softmax"), loss=OneByOne(mixing_many), loss_gradient=None),
        replace(models("plain"), loss=OneByOne(mixing_many)),
        replace(models("own plain"), loss=OneByOne(mixing_many)),
    ],
    ids=["model", "loss", "loss of a model that is not linear", "loss of an own model"],
)
def test_own_code_that_mixes_records_sees_each_alone_wherever_they_are_clipped(model):
    """All backends agree, and a record moves the sum by at most C (30 records would move it by
    many times that)."""
    counts = [30, 4]
    _, _, batches = problem("plain", counts, 2)
    batches.weights[:-1] = 1.0
    clean = replace(batches, weights=batches.weights.copy(), features=batches.features.clone())
    clean.weights[2] = 0.0
    clean.features[batches.positions[2]] *= -9.0
    model.module.double()
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(2, model.n_parameters, generator=generator, dtype=torch.float64)
    plain = sums(ReferenceBackend(model), weights, batches, 0.1)
    for backend in fast_backends(model, counts):
        fast = sums(backend, weights, batches, 0.1)
        torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-9)
        moved = (fast - sums(backend, weights, clean, 0.1)).norm(dim=1)
        assert moved.max() <= 0.1 * (1 + 1e-5)


def test_an_own_loss_of_stacked_learners_sees_no_other_learner_s_records_unclipped():
    model = replace(models("softmax"), loss=OneByOne(mixing_many), loss_gradient=None)
    _, weights, batches = problem("softmax", [9, 9], 2)
    batches.weights[:-1] = 1.0
    other = replace(batches, features=batches.features.clone())
    other.features[batches.positions[0]] += 1.0
    (backend, _) = fast_backends(model, [9, 9])
    moved = sums(backend, weights, batches, None) - sums(backend, weights, other, None)
    assert moved[0].any() and not moved[1].any()


@pytest.mark.parametrize("name", [*CONFIGS, *ODD, *OWN])
def test_a_clipped_record_has_at_most_the_clipping_norm(name):
    model, weights, batches = problem(name, [1, 1, 1], seed=1)
    batches.weights[:-1] = 1.0
    for backend in fast_backends(model, [1, 1, 1]):
        free = sums(backend, weights, batches, None)
        norm = float(free.norm(dim=1).min()) / 2
        clipped = sums(backend, weights, batches, norm)
        torch.testing.assert_close(clipped.norm(dim=1), torch.full((3,), norm).double())
        torch.testing.assert_close(clipped, free * norm / free.norm(dim=1, keepdim=True))


def spoiled(name, counts, value, by_double):
    """A problem one record of whose first learner has a feature, or all, of some value; and the
    same without that record."""
    model, weights, batches = problem(name, counts, seed=4)
    place = batches.positions[2]
    batches.weights[2] = 0.0
    clean = replace(batches, weights=batches.weights.copy(), features=batches.features.clone())
    batches.weights[2] = 1.0
    if np.isfinite(value):
        batches.features[place] = value
    else:
        batches.features[place, 0, 3, 4] = value
    if not by_double:
        model.module.float()
        weights = weights.float()
        batches, clean = (
            replace(b, features=b.features.float(), weights=b.weights.astype(np.float32))
            for b in (batches, clean)
        )
    return model, weights, batches, clean


@pytest.mark.parametrize("by_double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e18, 1e30, 3e38])
@pytest.mark.parametrize("name", [*CONFIGS, *ODD, "own tokens", "own twice"])
def test_no_record_moves_a_sum_by_more_than_the_clipping_norm(name, value, by_double):
    """A gradient without a finite norm counts as zero, and its record reaches no other learner."""
    counts = [5, 30, 0, 4]
    model, weights, batches, clean = spoiled(name, counts, value, by_double)
    for backend in [ReferenceBackend(model), *fast_backends(model, counts)]:
        bounded = sums(backend, weights, clean, 0.5)
        assert bounded.isfinite().all()
        moved = (sums(backend, weights, batches, 0.5) - bounded).norm(dim=1)
        assert moved[1:].tolist() == [0, 0, 0]
        assert moved[0] <= (0.5 * (1 + 1e-5) if np.isfinite(value) else 0)


@pytest.mark.parametrize("counts", [[5, 30, 0, 4], [40, 200, 0, 1]])
@pytest.mark.parametrize("name", ["softmax", "cnn12", "plain"])
def test_unclipped_a_record_reaches_its_own_learner_only(name, counts):
    """Learners with fewer records are padded: not with those of others."""
    model, weights, batches, clean = spoiled(name, counts, np.nan, by_double=True)
    for record in (0, int(batches.positions[2])):
        batches.features[record] = np.nan
    used = [0 in batches.positions[slice(*batches.offsets[i : i + 2])] for i in range(4)]
    for backend in fast_backends(model, counts):
        moved = sums(backend, weights, batches, None) - sums(backend, weights, clean, None)
        assert moved[0].isnan().any()
        for learner in (1, 2, 3):
            assert used[learner] or not moved[learner].any()


def test_which_modules_are_chains():
    """Those of known layers in a row, each of which treats every record alone."""
    layer, shared = nn.Linear(4, 4), nn.Linear(4, 4)
    hooked, renamed, own = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    hooked.register_forward_pre_hook(lambda module, inputs: inputs[0] - inputs[0].mean(0))
    renamed.forward = lambda features: features - features.mean(0)
    own.register_parameter("scale", nn.Parameter(torch.ones(1)))
    outer, inner, backward = (nn.Sequential(nn.Linear(4, 4)) for _ in range(3))
    outer.register_forward_pre_hook(lambda module, inputs: inputs[0] - inputs[0].mean(0))
    inner.register_forward_hook(lambda module, inputs, outputs: outputs - outputs.mean(0))
    backward[0].register_full_backward_hook(lambda module, of_inputs, of_outputs: None)
    chains = [
        nn.Sequential(nn.Flatten(), layer, nn.ReLU()),
        nn.Sequential(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Tanh()), nn.Sigmoid()),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d((2, 1), 2, ceil_mode=True), nn.Flatten()),
    ]
    others = [
        layer,
        *(nn.Sequential(nn.Flatten(), of) for of in (hooked, renamed, own, nn.ReLU())),
        *(outer, nn.Sequential(inner), backward),
        nn.Sequential(shared, shared),
        nn.Sequential(nn.Flatten(0), layer),
        nn.Sequential(layer, nn.Softmax(dim=0)),
        nn.Sequential(layer, nn.BatchNorm1d(4, affine=False)),
        nn.Sequential(layer, nn.Dropout(0.5)),
        nn.Sequential(nn.Conv2d(2, 2, 3, groups=2)),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding_mode="circular", padding=1)),
        nn.Sequential(nn.Conv2d(2, 2, 3, padding="same")),
        type("Mixing", (nn.Sequential,), {})(nn.Flatten(), layer),
        *(models(name).module for name in ODD),
    ]
    assert all(build_chain(module) for module in chains)
    assert not any(build_chain(module) for module in others)


@pytest.mark.parametrize("consecutive", [True, False])
def test_scattered_records_share_one_buffer(consecutive):
    """Of learners with many records each, one after the other: none leaves another's behind."""
    counts = np.array([900, 130, 1700])
    model, weights, batches = problem("softmax", counts, 0, consecutive)
    backend = build_backend(model, "auto", (counts, 0.0 * counts), CPU)
    assert backend.width == 0
    for norm in (None, 0.5):
        expected = sums(ReferenceBackend(model), weights, batches, norm)
        torch.testing.assert_close(sums(backend, weights, batches, norm), expected)


def test_the_stacked_width_by_hand():
    """Shards of 6 fit 8; 10 of 50 records have variance 8, so 10 + 1.5 sqrt(8) = 14.2 fit 16;
    minibatches of 500 are not stacked."""
    assert padded_width(np.full(3, 6.0), np.zeros(3)) == 8
    assert padded_width(np.full(3, 10.0), np.full(3, 8.0)) == 16
    assert padded_width(np.full(3, 500.0), np.zeros(3)) == 0


def test_clip_factor_by_hand():
    norms = torch.tensor([0.0, 0.5, 2.0])
    assert flat_clip(norms, 1.0).tolist() == [1.0, 1.0, 0.5]


def test_what_no_factor_bounds():
    assert clip_factors(torch.tensor([0.0, 0.5, 1e30]), 1.0, flat_clip)[1] is None
    norms = torch.tensor([torch.inf, 1.0, torch.nan, 3e38])
    assert clip_factors(norms, 100.0, flat_clip)[1].tolist() == [True, False, True, False]
    # A quotient of two significant bits may be half as large again as it should be.
    assert clip_factors(norms, 1e-6, flat_clip)[1].tolist() == [True, False, True, True]
