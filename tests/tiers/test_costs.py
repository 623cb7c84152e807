"""FLOPs, parameters and bytes of modules and tiers, against D's tables and counts by hand."""

import numpy as np
import pytest
import torch
from tests.builders import split_resnet, split_scores
from torch.utils.flop_counter import FlopCounterMode

from m2fdp.tiers.clock import fedavg_costs, module_costs, resnet_costs, splitfed_costs, tier_costs

MEGA = 1e6
# By module, of ResNet-56 and ResNet-110.
PARAMETERS = {
    56: [464, 14_016, 13_632, 59_776, 53_376, 236_288, 211_200, 2_570],
    110: [464, 27_648, 27_264, 113_152, 106_752, 447_488, 422_400, 2_570],
}
BUFFERS = {
    56: [32, 704, 576, 1_408, 1_152, 2_816, 2_304, 0],
    110: [32, 1_280, 1_152, 2_560, 2_304, 5_120, 4_608, 0],
}
MEGA_FLOPS = {
    56: [1.77, 81.79, 80.22, 99.09, 80.22, 99.09, 80.22, 0.02],
    110: [1.77, 162.00, 160.43, 179.31, 160.43, 179.31, 160.43, 0.02],
}
ACTIVATION_BYTES = [65_536, 262_144, 262_144, 131_072, 131_072, 65_536, 65_536]
HEADS = [170, 650, 650, 1_290, 1_290, 2_570, 2_570]


@pytest.mark.parametrize(
    ("depth", "numbers", "flops"),
    [(56, 591_322 + 8_992, 522.40), (110, 1_147_738 + 17_056, 1_003.70)],
)
def test_modules_and_whole_models_are_ds(depth, numbers, flops):
    costs = resnet_costs(depth, 16)
    assert costs.numbers.tolist() == np.add(PARAMETERS[depth], BUFFERS[depth]).tolist()
    assert (4 * costs.outputs[:-1]).tolist() == ACTIVATION_BYTES
    assert costs.head_numbers.tolist() == HEADS
    assert costs.flops / MEGA == pytest.approx(MEGA_FLOPS[depth], abs=0.005)
    assert costs.numbers.sum() == numbers
    assert costs.flops.sum() / MEGA == pytest.approx(flops, abs=0.005)


def test_flops_are_those_counted_by_hand():
    """Twice the multiplications forward, as many again for each gradient."""
    costs = resnet_costs(20, 16)
    pixels = 32 * 32
    assert costs.flops[0] == 2 * (2 * pixels * 16 * 27)  # md1: no gradient in the data
    body = 16 * 16 + 9 * 16 * 16 + 16 * 64
    assert costs.flops[1] == 3 * (2 * pixels * (body + 16 * 64))  # with its projection
    # md4: the 1 x 1 before the stride still sees all pixels.
    quarter = pixels // 4
    strided = 2 * pixels * 64 * 32 + 2 * quarter * (9 * 32 * 32 + 32 * 128 + 64 * 128)
    assert costs.flops[3] == 3 * strided
    assert costs.flops[7] == 3 * 2 * 256 * 10
    channels = np.array([16, 64, 64, 128, 128, 256, 256])
    assert costs.head_flops.tolist() == (6 * channels * 10).tolist()


# Products that give the gradient in the input of md2 (with its projection), md5 and md8, of
# ResNet-20 of width 4 on 16 x 16 images.
INPUT_GRADIENTS = {1: 256 * (4 * 4 + 4 * 16), 4: 64 * 32 * 8, 7: 64 * 10}


@pytest.mark.parametrize("tier", INPUT_GRADIENTS)
def test_a_tiers_flops_are_those_of_its_split_step(tier):
    """But for one gradient, which a split step does without: that in what the client has sent."""
    model = split_resnet(20, 4, (3, 16, 16), 10)
    tiers = tier_costs(module_costs(model), 7)
    counter = FlopCounterMode(display=False)
    with counter:
        scores = split_scores(model, tier, torch.empty((2, 3, 16, 16), device="meta"))
        sum(part.sum() for part in scores).backward()
    step = counter.get_total_flops() / 2
    billed = tiers.client_flops[tier - 1] + tiers.server_flops[tier - 1]
    assert billed - step == 2 * INPUT_GRADIENTS[tier]


def test_tiers_of_table_11():
    """With M tiers, tier m of the last M cuts; the last tier is always md1 to md7."""
    costs = resnet_costs(56, 16)
    for n_tiers in range(1, 8):
        tiers = tier_costs(costs, n_tiers)
        assert tiers.modules.tolist() == list(range(8 - n_tiers, 8))
    six = tier_costs(costs, 6)
    assert six.client_flops[0] == costs.flops[:2].sum() + costs.head_flops[1]
    assert six.server_flops[0] == pytest.approx(costs.flops[2:].sum())
    assert six.record_bytes.tolist() == [size + 8 for size in ACTIVATION_BYTES[1:]]
    assert six.model_bytes[0] == 4 * (464 + 14_016 + 32 + 704 + 650)


def test_a_tier_of_the_whole_model_is_fedavg():
    costs = resnet_costs(56, 16)
    tiers, fedavg = tier_costs(costs, 7, whole_model=True), fedavg_costs(costs)
    assert tiers.n_tiers == 8
    for name in ("modules", "client_flops", "server_flops", "record_bytes", "model_bytes"):
        assert getattr(tiers, name)[-1] == getattr(fedavg, name)[0]
    assert fedavg.model_bytes[0] == 4 * (591_322 + 8_992)


def test_splitfed_sends_activations_and_fetches_their_gradients():
    splitfed = splitfed_costs(resnet_costs(56, 16))
    assert splitfed.record_bytes.tolist() == [2 * 262_144 + 8]
    assert splitfed.model_bytes.tolist() == [4 * (464 + 14_016 + 32 + 704)]


@pytest.mark.parametrize("n_tiers", [0, 8])
def test_there_are_no_more_tiers_than_cuts(n_tiers):
    with pytest.raises(ValueError, match="1 to 7 tiers"):
        tier_costs(resnet_costs(20, 4), n_tiers)
