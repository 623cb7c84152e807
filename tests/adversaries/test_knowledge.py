"""What an attacker knows: labels from the last layer, and the message that images would make."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.builders import experiment_of

from m2fdp.adversaries.inversion import Knowledge, Message, labels_by_rule, message_of, sought_in
from m2fdp.core.config import ModelConfig
from m2fdp.core.errors import InputError
from m2fdp.core.models.registry import build_model

SHAPE = (1, 8, 8)


def message_with(devices, shares):
    nothing = torch.zeros(650)
    return Message("a sum", np.array(devices), np.array(shares), nothing, nothing, 1, 0.5)


def knowledge_of(sizes, model="softmax", **norms):
    built = build_model(ModelConfig(name=model), SHAPE, 10, seed=0)
    return Knowledge(built, SHAPE, 10, np.array(sizes), **norms)


@pytest.mark.parametrize("labels", [[3], [3, 5], [5, 5], [1, 4, 4], [0, 1, 2, 3]])
@pytest.mark.parametrize("model", ["softmax", "lenet", "dense"])
def test_labels_are_read_off(labels, model):
    knowledge = knowledge_of([1] * len(labels), model)
    images = torch.rand(len(labels), *SHAPE, generator=torch.Generator().manual_seed(1))
    message = message_with(range(len(labels)), [1.0] * len(labels))
    sought = sought_in(message, knowledge, len(labels))
    start = knowledge.model.initial_vector().double()
    made = message_of(images.double(), torch.eye(10).double()[labels], knowledge, sought, start)
    message = replace(message, start=start.float(), update=-0.5 * len(labels) * made.float())
    assert sorted(labels_by_rule(message, knowledge, len(labels))) == labels


def test_images_are_dealt_in_turn_and_no_more_than_there_are():
    message, knowledge = message_with([1, 2], [0.25, 0.75]), knowledge_of([9, 1, 3])
    sought = sought_in(message, knowledge, 3)
    assert sought.owners.tolist() == [0, 1, 1]
    assert sought.weights.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]]
    assert sought.parts.tolist() == [0.25, 0.75]
    assert len(sought_in(message, knowledge, 60)) == 4
    assert sought_in(message, knowledge, 1).parts.tolist() == [1.0]


def test_a_message_is_clipped_as_devices_clip():
    message = message_with([0, 1], [0.5, 0.5])
    images = torch.rand(2, *SHAPE, dtype=torch.float64)
    labels = torch.eye(10).double()[[3, 7]]
    plain = knowledge_of([1, 1])
    start = plain.model.initial_vector().double()
    gradients = []
    for image, label in zip(images, (3, 7), strict=True):
        error = 0.1 - torch.eye(10).double()[label]
        gradients.append(torch.outer(error, image.flatten()).flatten())
    sought = sought_in(message, plain, 2)
    assert torch.allclose(
        message_of(images, labels, plain, sought, start), sum(gradients) / 2, atol=1e-9
    )
    for norms in ({"record_norm": 0.3}, {"device_norm": 0.3}):
        clipped = sum(0.3 * each / each.norm() for each in gradients) / 2
        found = message_of(images, labels, knowledge_of([1, 1], **norms), sought, start)
        assert torch.allclose(found, clipped, atol=1e-9)


def test_a_model_without_linear_last_layer_is_refused():
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 10, 8), torch.nn.Flatten())
    model = build_model(ModelConfig(), SHAPE, 10, seed=0)
    odd = type(model)("odd", module, model.loss, linear=False)
    with pytest.raises(InputError, match="model.name = 'odd': has no linear last layer"):
        labels_by_rule(message_with([0], [1.0]), Knowledge(odd, SHAPE, 10, np.array([1])), 1)


def test_epsilon_beside_a_message_is_the_ledgers_of_the_worst_device_in_it():
    attack = {"method": "analytic", "observer": "cloud", "round": 2}
    run = {"topology": {"fanouts": [2, 2], "trust": {"untrusted": ["server-1-1"]}}}
    experiment = experiment_of(run, {"attack": attack, "training.rounds": 2})
    record = experiment.attack().record
    ledger = experiment.calibrate().mechanism.ledger
    for number, message in enumerate(record["messages"]):
        inside = {2 * number, 2 * number + 1}
        lines = [x for x in ledger.lines if x.kind == "cloud" and inside & {*x.position.members}]
        assert message["epsilon"] == max(ledger.epsilon(line, 2) for line in lines)
