"""Who holds what: the promises of every scheme, for any tree and any labels."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from m2fdp.core.config import PartitionConfig
from m2fdp.core.data.partitioners import partition, stratified_position
from m2fdp.core.errors import InputError

FASHION_MNIST = np.tile(np.arange(10), 6000)
FIFTY = np.repeat(np.arange(10), 5)  # 10 edge servers x 5 devices


def counts(device, labels, n_devices, n_classes):
    """(n_devices, n_classes) records of each class that each device holds."""
    held = device >= 0
    table = np.zeros((n_devices, n_classes), dtype=int)
    np.add.at(table, (device[held], labels[held]), 1)
    return table


@st.composite
def cases(draw):
    """A tree with 1 to 6 edge servers of 1 to 5 devices, labels with every class, and a seed."""
    edges = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    n_classes = draw(st.integers(2, 8))
    extra = draw(st.lists(st.integers(0, n_classes - 1), max_size=300))
    labels = np.concatenate([np.tile(np.arange(n_classes), draw(st.integers(1, 20))), extra])
    return (
        np.repeat(np.arange(len(edges)), edges),
        labels.astype(np.int64),
        n_classes,
        draw(st.integers(0, 2**32)),
    )


schemes = st.builds(
    PartitionConfig,
    scheme=st.sampled_from(["labels_per_device", "dirichlet", "quantity", "iid"]),
    labels_per_device=st.integers(1, 8),
    alpha=st.floats(1e-3, 1e3),
    samples_per_device=st.none() | st.integers(1, 30),
)


@settings(max_examples=300, deadline=None)
@given(cases(), schemes)
def test_every_scheme_deals_each_record_once_and_leaves_no_device_empty(case, config):
    edges, labels, n_classes, seed = case
    try:
        device = partition(labels, n_classes, config, edges, seed)
    except InputError:
        assume(False)
    cap = config.samples_per_device
    sizes = np.bincount(device[device >= 0], minlength=len(edges))
    assert device.shape == labels.shape
    assert device.max() < len(edges)
    assert sizes.min() >= 1
    if cap is None:
        assert device.min() >= 0
    else:
        whole = partition(
            labels, n_classes, config.model_copy(update={"samples_per_device": None}), edges, seed
        )
        np.testing.assert_array_equal(sizes, np.minimum(cap, np.bincount(whole)))
        assert (device[device >= 0] == whole[device >= 0]).all()
    if config.scheme == "labels_per_device":
        holds = counts(device, labels, len(edges), n_classes) > 0
        assert (holds.sum(axis=1) == min(config.labels_per_device, n_classes)).all()
    np.testing.assert_array_equal(device, partition(labels, n_classes, config, edges, seed))


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 60), st.integers(1, 10), st.integers(0, 1000))
def test_labels_are_used_about_equally(n_devices, k, seed):
    assume(n_devices * k >= 10)
    config = PartitionConfig(labels_per_device=k)
    labels = np.tile(np.arange(10), 60)
    device = partition(labels, 10, config, np.zeros(n_devices, dtype=int), seed)
    holders = (counts(device, labels, n_devices, 10) > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1


@pytest.mark.parametrize("per_class", [143, 144, 149, 150, 151])
def test_rounding_costs_a_device_at_most_two_records(per_class):
    """50 x 3 label slots, 15 devices a class: 10 records each, give or take the remainder."""
    labels = np.repeat(np.arange(10), per_class)
    config = PartitionConfig(labels_per_device=3)
    for seed in range(5):
        table = counts(partition(labels, 10, config, FIFTY, seed), labels, 50, 10)
        assert np.abs(table.sum(axis=1) - per_class / 5).max() < 2
        assert per_class != 150 or set(table.ravel()) == {0, 10}


def test_small_alpha_skews_labels_and_large_alpha_does_not():
    def largest_share(alpha):
        config = PartitionConfig(scheme="dirichlet", alpha=alpha)
        table = counts(partition(FASHION_MNIST, 10, config, FIFTY, 0), FASHION_MNIST, 50, 10)
        return (table / table.sum(axis=1, keepdims=True)).max(axis=1).mean()

    # A label's share has mean 1/10; one draw of Dir(0.05, …) is nearly a single label.
    assert largest_share(0.05) > 0.7
    assert largest_share(1e4) < 0.11


def test_quantity_skews_sizes_alone():
    config = PartitionConfig(scheme="quantity", alpha=5)
    table = counts(partition(FASHION_MNIST, 10, config, FIFTY, 0), FASHION_MNIST, 50, 10)
    sizes = table.sum(axis=1)
    assert sizes.max() > 1.5 * sizes.min()
    assert np.ptp(sizes.reshape(10, 5), axis=1).max() > 1
    # Labels stay those of a random subset: within 5 standard deviations of a tenth.
    deviation = (table - sizes[:, None] / 10) / np.sqrt(sizes[:, None] * 0.09)
    assert np.abs(deviation).max() < 5


def test_a_table_is_dealt_to_the_record_and_another_seed_deals_others():
    table = [[40, 0, 7], [1, 30, 0], [9, 20, 43]]
    labels = np.repeat([0, 1, 2], 50)
    config = PartitionConfig(scheme="table", table=table)
    first, second = (partition(labels, 3, config, np.arange(3), seed) for seed in (0, 1))
    assert counts(first, labels, 3, 3).tolist() == counts(second, labels, 3, 3).tolist() == table
    assert (first != second).any()


def test_the_tables_of_the_command_line_and_of_a_file_are_one():
    text, numbers = "40/0|10/50", [[40, 0], [10, 50]]
    assert PartitionConfig(scheme="table", table=text).table == numbers


@settings(max_examples=100, deadline=None)
@given(case=cases(), data=st.data())
def test_a_table_gives_proportions(case, data):
    edges, labels, n_classes, seed = case
    row = st.lists(st.integers(1, 9), min_size=n_classes, max_size=n_classes)
    table = data.draw(st.lists(row, min_size=len(edges), max_size=len(edges)))
    config = PartitionConfig(scheme="table", table=table)
    try:
        device = partition(labels, n_classes, config, edges, seed)
    except InputError:
        assume(False)
    held = counts(device, labels, len(edges), n_classes)
    of_class = np.bincount(labels, minlength=n_classes)
    ideal = np.array(table) / np.sum(table, axis=0) * of_class
    assert held.sum(axis=0).tolist() == of_class.tolist()
    # Rounding moves less than a record of a class a device.
    assert (np.abs(held - ideal) < 1 + 1e-6).all()


def test_iid_shards_are_equal_random_subsets():
    device = partition(FASHION_MNIST, 10, PartitionConfig(scheme="iid"), FIFTY, 0)
    table = counts(device, FASHION_MNIST, 50, 10)
    assert (table.sum(axis=1) == 1200).all()
    # Multinomial in effect: standard deviation of a count sqrt(1200 x 0.09) = 10.4.
    assert 9 < (table - 120).std() < 12


def test_cap_keeps_the_label_mix_and_smaller_caps_are_subsets():
    shards = {
        cap: partition(FASHION_MNIST, 10, PartitionConfig(samples_per_device=cap), FIFTY, 0)
        for cap in (30, 100)
    }
    assert set(counts(shards[30], FASHION_MNIST, 50, 10).ravel()) == {0, 10}
    assert set(counts(shards[100], FASHION_MNIST, 50, 10).ravel()) == {0, 33, 34}
    assert (shards[100][shards[30] >= 0] >= 0).all()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=80),
    st.integers(0, 1000),
)
def test_stratified_position_keeps_the_mix_in_every_prefix(pairs, seed):
    group, label = np.array(pairs).T
    position = stratified_position(group, label, np.random.default_rng(seed))
    for g in np.unique(group):
        mine = group == g
        assert sorted(position[mine]) == list(range(mine.sum()))
        mix = np.bincount(label[mine], minlength=4) / mine.sum()
        for m in range(1, mine.sum() + 1):
            labels_taken = np.bincount(label[mine & (position < m)], minlength=4)
            # Webster's method may leave the quota, but not by a whole seat.
            assert np.abs(labels_taken - m * mix).max() < 2


def test_stratified_position_apportions_like_webster():
    """Nine of one label and one of another: quotients 0.5/9, 1.5/9, … against 0.5/1."""
    label = np.array([0] * 9 + [1])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        # The lone record ties with the fifth of the others, (4 + 0.5)/9, and goes 5th or 6th.
        assert stratified_position(np.zeros(10, dtype=int), label, rng)[9] in (4, 5)


@pytest.mark.parametrize(
    ("config", "n_devices", "n_records", "message"),
    [
        ({"labels_per_device": 11}, 50, 500, "labels_per_device = 11: valid: 1 to 10"),
        ({"labels_per_device": 3}, 3, 500, r"without a holder; valid: 4 to 10"),
        ({"scheme": "iid"}, 50, 40, "50 devices.*at most one device a training record, here 40"),
        ({"scheme": "quantity", "alpha": 0.01}, 50, 500, "device .* no record.*partition.alpha"),
        ({"labels_per_device": 10}, 50, 400, "device .* would hold records of 8 classes only"),
        ({"labels_per_device": 3, "samples_per_device": 2}, 50, 500, "of 2 classes only"),
        ({"scheme": "table", "table": [[1] * 10]}, 2, 50, "'1 row': valid: 2, one for each"),
        ({"scheme": "table", "table": [[1] * 9]}, 1, 50, "'row 0 of 9': .*each of 10 classes"),
        ({"scheme": "table", "table": [[1] * 9 + [0]]}, 1, 50, "'column 9 of zeros': .*holds"),
        ({"scheme": "table", "table": [[1] * 10, [0] * 10]}, 2, 50, "device 1 .*partition.table"),
    ],
)
def test_what_cannot_be_dealt_is_refused(config, n_devices, n_records, message):
    labels = np.arange(n_records) % 10
    with pytest.raises(InputError, match=message) as caught:
        partition(labels, 10, PartitionConfig(**config), np.zeros(n_devices, dtype=int), 0)
    assert "\n" not in str(caught.value)


def test_label_sets_differ_between_devices():
    device = partition(FASHION_MNIST, 10, PartitionConfig(), FIFTY, 0)
    assert len(np.unique(counts(device, FASHION_MNIST, 50, 10) > 0, axis=0)) > 10


def test_seeds_deal_differently():
    first, second = (partition(FASHION_MNIST, 10, PartitionConfig(), FIFTY, s) for s in (0, 1))
    assert (first != second).mean() > 0.9
