"""FedGKT: what both sides descend, who keeps what from round to round, and who is evaluated."""

import copy
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from tests.builders import split_resnet
from tests.tiers.runs import SIZES, STARTS, experiment
from torch.utils.flop_counter import FlopCounterMode

from m2fdp.core.config import ModelConfig
from m2fdp.core.engine.chains import channels_last
from m2fdp.tiers.clock import fedgkt_costs, module_costs, resnet_costs
from m2fdp.tiers.split_models import build_split_model
from m2fdp.tiers.transfer import SCORES, build_transfer_model, distillation, whole_batches

CONFIG = ModelConfig(name="resnet", width=2)


def process_of(run, dtype=torch.float64):
    shards = run.shards()
    return run.process(run.simulation(shards=replace(shards, features=shards.features.to(dtype))))


@pytest.fixture
def run():
    return experiment("fedgkt")


@pytest.fixture
def process(run):
    return process_of(run)


def states_of(run, process):
    states = [process.start()]
    for plan in run.run_plan.rounds:
        states.append(process.round(states[-1], plan))
    return states


def test_the_divergence_by_hand():
    """p = (3/4, 1/4) and q = (1/2, 1/2) at T = 3; the same scores teach nothing."""
    scores = torch.tensor([[1.0, 1.0], [2.0, 5.0]])
    taught = torch.tensor([[3 * log(3), 0.0], [2, 5]])
    by_hand = 9 * (0.75 * log(1.5) + 0.25 * log(0.5))
    assert distillation(scores, taught, 3.0).tolist() == pytest.approx([by_hand, 0.0], abs=1e-6)
    # From the teacher to the pupil: the other way round is another number.
    assert by_hand != pytest.approx(float(distillation(taught, scores, 3.0)[0]), rel=0.01)


def test_the_divergence_is_torchs_own():
    draws = torch.Generator().manual_seed(0)
    scores, taught = torch.randn((2, 5, 4), generator=draws, dtype=torch.float64)
    theirs = torch.nn.functional.kl_div(
        (scores / 3).log_softmax(1), (taught / 3).softmax(1), reduction="batchmean"
    )
    torch.testing.assert_close(distillation(scores, taught, 3.0).mean(), 9 * theirs)


def by_plain_torch(run, rounds):
    """Clients and a server as torch's users write them; networks, and what the server has sent."""
    split = build_split_model(CONFIG, (1, 8, 8), 10, run.config.seed, (1,), small=True)
    whole = copy.deepcopy(split.module).double().to(memory_format=torch.channels_last)
    one = torch.nn.ModuleDict({"first": whole.chain[0], "small": whole.heads["1"]})
    clients = [copy.deepcopy(one) for _ in SIZES]
    server = torch.nn.Sequential(*whole.chain[1:])
    shards, sampling = run.shards(), run.simulation().randomness.sampling
    features, labels = shards.features.double(), shards.labels
    logits = torch.zeros(27, 10, dtype=torch.float64)

    def step(optimizer, scores, labels, taught):
        optimizer.zero_grad()
        value = torch.nn.functional.cross_entropy(scores, labels)
        if taught is not None:
            own_logs, others = (scores / 3).log_softmax(1), (taught / 3).log_softmax(1)
            value = value + (9 * (others.exp() * (others - own_logs)).sum(1)).mean()
        value.backward()
        optimizer.step()

    for number in range(1, rounds + 1):
        sent, own_scores = [], []
        for client, (first, small) in enumerate(each.values() for each in clients):
            rows = slice(STARTS[client], STARTS[client + 1])
            optimizer = torch.optim.Adam(clients[client].parameters(), 0.01)
            clients[client].train()
            order = sampling.generator("tier-batches", number, client)
            for _ in range(2):
                shuffled = order.permutation(SIZES[client])
                for batch in np.split(shuffled, range(4, SIZES[client], 4)):
                    taught = logits[rows][batch] if number > 1 else None
                    scores = small(first(channels_last(features[rows][batch])))
                    step(optimizer, scores, labels[rows][batch], taught)
            clients[client].eval()
            with torch.no_grad():
                sent.append(first(channels_last(features[rows])))
                own_scores.append(small(sent[-1]))
        sent, own_scores, logits = torch.cat(sent), torch.cat(own_scores), logits.clone()
        optimizer = torch.optim.Adam(server.parameters(), 0.01)
        server.train()
        order = sampling.generator("server-batches", number)
        for batch in np.split(order.permutation(27), range(4, 27, 4)):
            scores = server(channels_last(sent[batch]))
            logits[batch] = scores.detach()
            step(optimizer, scores, labels[batch], own_scores[batch])
    return clients, server, logits


def test_rounds_are_those_of_plain_torch_to_the_bit():
    """Three rounds of two epochs in double precision; scores are taught from the second on."""
    run = experiment("fedgkt", **{"training.local_epochs": 2})
    process = process_of(run)
    *_, last = states_of(run, process)
    clients, server, taught_scores = by_plain_torch(run, 3)
    named = process.model.unflatten(last.weights)
    whole = torch.nn.ModuleDict({"server": server, "clients": torch.nn.ModuleList(clients)})
    for name, tensor in (*whole.named_parameters(), *whole.named_buffers()):
        if tensor.is_floating_point():
            assert torch.equal(named[name], tensor.detach()), name
    assert torch.equal(last.slots.server[SCORES], taught_scores)


def test_clients_keep_numbers_of_their_own(run, process):
    start, first, *_ = states_of(run, process)
    places = [process.model.client_place(number) for number in range(3)]
    assert all(torch.equal(start.weights[places[0]], start.weights[place]) for place in places)
    models = [first.weights[place] for place in places]
    assert not torch.equal(models[0], models[1]) and not torch.equal(models[1], models[2])
    mean = torch.stack(models).mean(0)
    assert all(not torch.allclose(numbers, mean) for numbers in models)
    assert set(first.slots.server) == {SCORES} and (first.slots.server[SCORES] != 0).any(1).all()


def test_what_clients_have_is_theirs_alone(run, process):
    """Other records of client 0 change its own numbers and the server's, and in that round nobody
    else's."""
    shards = process.simulation.shards
    features = shards.features.clone()
    features[: SIZES[0]] += 1.0
    changed = run.process(run.simulation(shards=replace(shards, features=features)))
    plan = run.run_plan.rounds[0]
    one, other = (each.round(each.start(), plan).weights for each in (process, changed))
    moved = [not torch.equal(one[p], other[p]) for p in map(process.model.client_place, range(3))]
    assert moved == [True, False, False]
    server = process.model.server_place
    assert not torch.equal(one[server], other[server])


def test_who_is_absent_keeps_its_numbers_and_what_it_was_taught():
    run = experiment("fedgkt", **{"training.participants": 1, "training.rounds": 6})
    process = process_of(run)
    states = states_of(run, process)
    moved = set()
    for before, after, present in zip(states, states[1:], process.present, strict=False):
        for client in range(3):
            place, rows = process.model.client_place(client), slice(*STARTS[client : client + 2])
            equal = torch.equal(before.weights[place], after.weights[place])
            earlier, later = before.slots.server[SCORES], after.slots.server[SCORES]
            scores = torch.equal(earlier[rows], later[rows])
            assert equal == scores == (not present[client])
            moved.add(bool(present[client]))
    assert moved == {True, False}
    assert process.sent.shape[0] == max(SIZES[k] for k in np.flatnonzero(process.present.any(0)))


def test_all_turns_of_the_records_are_the_mean_over_clients(run, process):
    """A record is scored by one client: over K turns of the records, by each of them once."""
    *_, last = states_of(run, process)
    model, features = process.model, process.simulation.shards.features
    turns = ((turn, features.roll(turn, 0)) for turn in range(3))
    turned = [model.scores(last.weights, records).roll(-turn, 0) for turn, records in turns]
    single = replace(model, n_clients=1)
    server = last.weights[model.server_place]
    separate = [
        single.scores(torch.cat((server, last.weights[model.client_place(k)])), features)
        for k in range(3)
    ]
    torch.testing.assert_close(sum(turned), sum(separate))
    for number in range(27):
        torch.testing.assert_close(turned[0][number], separate[number % 3][number])
    assert not torch.allclose(separate[0], separate[1])


def test_fewer_records_than_clients_are_scored_by_the_first(process):
    weights, features = process.start().weights, process.simulation.shards.features
    assert process.model.scores(weights, features[:1]).shape == (1, 10)


def test_a_client_is_a_resnet_of_eight_layers_and_begins_as_the_whole_does():
    model = build_transfer_model(CONFIG, (1, 8, 8), 3, 0, 2)
    kinds = torch.nn.Conv2d, torch.nn.Linear
    layers = [module for module in model.client.modules() if isinstance(module, kinds)]
    projections = 1
    assert len(layers) - projections == 8
    whole = build_split_model(CONFIG, (1, 8, 8), 3, 0, ())
    features = torch.rand((4, 1, 8, 8), generator=torch.Generator().manual_seed(0))
    scores = model.scores(model.initial_vector(), features)
    torch.testing.assert_close(scores, whole.scores(whole.initial_vector(), features))
    assert model.n_parameters == len(model.initial_vector())
    named = model.unflatten(model.initial_vector())
    assert sum(tensor.numel() for tensor in named.values()) == model.n_parameters
    assert torch.equal(torch.cat([t.flatten() for t in named.values()]), model.initial_vector())


@pytest.mark.parametrize("sizes", [[4, 5], [4, 4], [1]])
def test_a_record_that_is_left_over_joins_the_last_batch(sizes):
    batches = whole_batches(torch.arange(sum(sizes)), 4)
    assert [len(batch) for batch in batches] == sizes
    assert torch.equal(torch.cat(batches), torch.arange(sum(sizes)))


def test_flops_are_those_of_a_clients_step_and_of_what_it_sends():
    """Counted on the two networks themselves, on shapes."""
    shape = (3, 16, 16)
    config = ModelConfig(name="resnet", width=4)
    small = build_split_model(config, shape, 10, None, (1,), small=True)
    costs = module_costs(split_resnet(20, 4, shape, 10), small)

    def flops(backward):
        counter = FlopCounterMode(display=False)
        with counter:
            scores = small.heads["1"](small.modules[0](torch.empty((2, *shape), device="meta")))
            if backward:
                scores.sum().backward()
        return counter.get_total_flops() / 2

    one = fedgkt_costs(costs)
    assert one.client_flops[0] == pytest.approx(flops(True) + flops(False))
    longer = fedgkt_costs(costs, epochs=3)
    assert longer.client_flops[0] == pytest.approx(3 * flops(True) + flops(False))
    assert longer.server_flops[0] == one.server_flops[0] == costs.flops[1:].sum()


def test_it_sends_activations_labels_and_scores_and_no_model():
    costs = fedgkt_costs(resnet_costs(56, 16))
    sent = 4 * 16 * 32 * 32 + 8 + 2 * 4 * 10
    assert (costs.modules, costs.record_bytes, costs.model_bytes) == (1, sent, 0)
