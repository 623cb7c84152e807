"""Ways to train in epochs: a new one is one object, and nothing else knows of it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.tiers.runs import experiment

from m2fdp.core.algorithms import ALGORITHMS
from m2fdp.core.errors import InputError
from m2fdp.tiers.algorithms import star_in_tiers
from m2fdp.tiers.clock import TierCosts
from m2fdp.tiers.ways import DTFL, FEDAVG, FEDGKT, SPLITFED, TierAlgorithm, Way


def free(modules, clock, tiering, epochs):
    """What a client does that neither computes nor sends a record."""
    nothing = np.zeros(1)
    return TierCosts(np.array([3]), nothing, nothing, nothing, np.array([2.0**20]))


@pytest.fixture
def own(monkeypatch):
    """Runs of an algorithm with that way."""

    def make(way, **keys):
        algorithm = TierAlgorithm("own", "Own", "method", star_in_tiers, tiers=way)
        monkeypatch.setitem(ALGORITHMS, "own", algorithm)
        return experiment("own", **{"clock.noise": 0.0} | keys)

    return make


def test_a_way_of_ones_own_is_planned_billed_trained_and_told(own):
    """Of clients that only fetch and send a MiB each way, the slowest at 30 MiB/s."""
    way = Way("own", free, whole=True, sees={"cloud": "stars{how}"})
    run = own(way)
    assert [cost.delay_s for cost in run.course.costs] == pytest.approx([2 / 30] * 3)
    assert (run.course.cuts == 8).all()
    sees = run.ledger().set_index("kind")["sees"]
    assert sees["cloud"] == "stars" and sees["public"] == "un-noised models"
    process = run.process(run.simulation(shards=run.shards()))
    assert process.round(process.start(), run.run_plan.rounds[0]).round == 1
    assert (own(replace(way, whole=False)).course.cuts == 3).all()


@pytest.mark.parametrize("way", [DTFL, FEDAVG, SPLITFED, FEDGKT], ids=lambda way: way.name)
def test_keys_belong_to_what_a_way_is_and_not_to_its_name(own, way):
    keys = {"leakage.patch_shuffling": True}
    if way.tiered:
        own(way, **keys)
        return
    with pytest.raises(InputError) as caught:
        own(way, **keys)
    assert [caught.value.key] == [*keys]
