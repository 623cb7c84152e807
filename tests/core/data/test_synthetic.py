"""Labelled images that are nobody's records."""

import numpy as np
import pytest

from m2fdp.core.config import DatasetConfig, load_config
from m2fdp.core.data.sources import load_dataset
from m2fdp.core.errors import InputError
from m2fdp.sources import synthetic


def made(**keys):
    return load_dataset(DatasetConfig(name="synthetic", **keys))


@pytest.mark.parametrize(
    ("shape", "classes"), [([28, 28, 1], 10), ([32, 32, 3], 4), ([9, 12, 1], 26)]
)
def test_they_have_the_shape_and_classes_that_are_asked_for(monkeypatch, shape, classes):
    monkeypatch.setattr(DatasetConfig, "classes", classes)
    data = made(shape=shape, records=600)
    assert data.images.shape == (700, *shape) and data.images.dtype == np.uint8
    assert (data.n_train, data.n_classes, data.name) == (600, classes, "synthetic")
    assert set(data.labels) == set(range(classes))
    assert 20 < data.images.mean() < 200


def test_they_are_always_the_same():
    first = made(records=300)
    np.testing.assert_array_equal(first.images, made(records=300).images)
    assert not np.array_equal(first.images[0], first.images[1])


@pytest.mark.parametrize("shape", [[28, 28, 1], [32, 32, 3]])
def test_their_classes_can_be_told_apart_but_not_by_a_prototype_alone(monkeypatch, shape):
    monkeypatch.setattr(DatasetConfig, "classes", 5)
    data = made(shape=shape, records=3000)
    pixels = data.images.reshape(len(data.images), -1).astype(float)
    train, test = pixels[:3000], pixels[3000:]
    means = np.stack([train[data.labels[:3000] == c].mean(axis=0) for c in range(5)])
    nearest = ((test[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
    accuracy = (nearest == data.labels[3000:]).mean()
    assert 0.35 < accuracy < 0.98


def test_a_basis_adds_up_inside():
    places = np.linspace(-0.5, 0.5, 7, dtype=np.float32)[None]
    sums = synthetic._basis(places, 10).sum(axis=2)
    np.testing.assert_allclose(sums, sums[0, 0], rtol=1e-5)


@pytest.mark.parametrize("shape", [[28, 28, 2], [28, 28], [28, 28, 0], [200, 28, 1]])
def test_other_shapes_are_refused(shape):
    with pytest.raises(InputError, match=r"dataset\.shape"):
        load_config({"dataset.name": "synthetic", "dataset.shape": shape})
