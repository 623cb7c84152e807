"""The audited copies: the noise is the configured one, and canaries attain the ledger's shift."""

import numpy as np
import pytest
import torch
from tests.adversaries.copies import silent

from m2fdp.adversaries.audit import listen
from m2fdp.adversaries.heard import heard_by

UPLOAD = {"mechanism": "upload"}
SYSTEMS = {
    "upload": UPLOAD | {"local_aggregation": {1: 2}},
    "upload, decaying steps": UPLOAD | {"local_aggregation": {1: 2}, "step_size": "inverse_sqrt"},
    "paper": UPLOAD | {"local_aggregation": {1: 2}, "calibration": "paper"},
    "device": UPLOAD | {"local_aggregation": {1: 2}, "unit": "device"},
    "gradient": {"local_aggregation": {1: 2}},
    "gradient, device": {"unit": "device"},
    "weights": UPLOAD
    | {"weights": "samples", "size": [60, 100, 140] * 2, "local_aggregation": {1: 2}},
    "gradient, weights": {"weights": "samples", "size": [60, 100, 140] * 2},
    "noise below heads": UPLOAD | {"noise_below_heads": 0.25},
    "deep": UPLOAD
    | {
        "fanouts": (2, 2, 3),
        "untrusted": ("server-1-1", "server-2-3"),
        "local_aggregation": {2: 2, 1: 4},
        "steps": 8,
    },
}


# Three devices below each of two trusted servers below a trusted cloud; and with the second server
# untrusted, whose devices are their own heads, or noise below the cloud's.
CLOUD = {"trusted_cloud": True, "untrusted": ()}
CLOUDS = {
    "cloud, upload": CLOUD | UPLOAD | {"local_aggregation": {1: 2}},
    "cloud, gradient": CLOUD | {"local_aggregation": {1: 2}},
    "cloud, device": CLOUD | UPLOAD | {"unit": "device"},
    "cloud, noise below": CLOUD | UPLOAD | {"noise_below_heads": 0.25},
    "cloud, weights": CLOUD | UPLOAD | {"weights": "samples", "size": [60, 100, 140] * 2},
    "cloud above untrusted": UPLOAD | {"trusted_cloud": True},
    "cloud of a star": CLOUD | UPLOAD | {"fanouts": (6,)},
}


def planted(system, name, copies):
    """Copies of each kind of head; of a trusted cloud's the whole tree's, which the public hear."""
    if name in CLOUDS:
        canaries, line = system.plant(copies)
        assert (line.kind, line.position.head_layer) == ("public", 0)
        return [(canaries, line)]
    return [system.plant(copies, which=which) for which in range(3 if name == "deep" else 2)]


@pytest.mark.parametrize("name", SYSTEMS | CLOUDS)
def test_canaries_attain_the_largest_shift_of_the_ledger(make_system, name):
    # At q = 1 the record enters at the first step, which is the worst.
    system = make_system(rate=1.0, **(SYSTEMS | CLOUDS)[name])
    for canaries, line in planted(system, name, 4):
        seen = listen(silent(canaries), 2)
        moved = seen[..., canaries.present].mean(-1) - seen[..., ~canaries.present].mean(-1)
        laws = line.laws(line.position, system.schedule.round_plans()[0])
        # Under `gradient` a message holds the sum of its steps.
        whole = sum(law.largest * count for law, count in laws)
        expected = whole * line.position.unit * canaries.scale
        assert moved.sum(axis=1) == pytest.approx([expected] * 2, rel=1e-3)


@pytest.mark.parametrize("name", SYSTEMS | CLOUDS)
def test_releases_carry_the_configured_noise(make_system, name):
    system = make_system(rate=1.0, rounds=2, **(SYSTEMS | CLOUDS)[name])
    for canaries, line in planted(system, name, 3000)[:2]:
        seen = listen(canaries, 2)[..., ~canaries.present]
        scale = line.deviation * line.position.unit * canaries.scale
        if system.privacy.mechanism == "gradient":
            scale *= np.sqrt(system.schedule.local_steps / seen.shape[1])
        # The spread of 1,500 draws lies within 8 % with probability 1 - 1e-5.
        assert seen.std(axis=-1) / scale == pytest.approx(np.ones(seen.shape[:2]), rel=0.08)


def test_the_canary_is_drawn_as_often_as_its_rate_says(make_system):
    system = make_system(rate=0.3, steps=1)
    canaries, line = system.plant(2000)
    seen = listen(silent(canaries), 3)
    moved = seen[..., canaries.present] > 1e-9
    # 3,000 draws: five standard deviations are 0.042.
    assert moved.mean() == pytest.approx(0.3, abs=0.042)
    assert not (seen[..., ~canaries.present] > 1e-9).any()


def test_who_listens_changes_nothing(make_system):
    canaries, _ = make_system(rate=1.0, **SYSTEMS["upload"]).plant(6)
    messages = []

    def tap(direction, layer, models):
        messages.append((direction, layer, tuple(models.shape)))

    # Tapped messages have noises of their own; without noise nothing differs.
    process, plan = silent(canaries).process, canaries.plans[0]
    with_tap = heard_by(process, tap).round(process.start(), plan)
    without = process.round(process.start(), plan)
    assert torch.equal(with_tap.weights, without.weights)
    assert with_tap.weights.any()
    # The audited server is trusted; its local aggregation at step 2 stays below it.
    assert messages == [
        ("up", 2, (18, 2)),
        ("down", 1, (6, 2)),
        ("up", 2, (18, 2)),
        ("up", 1, (6, 2)),
    ]
