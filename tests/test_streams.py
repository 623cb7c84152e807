"""Random streams: what keys them, and that no two keys are equal."""

from hashlib import blake2b
from itertools import product

import numpy as np
import pytest

from m2fdp.core.streams import KeyedStreams, generator, seeded

# As many as a long run has: birthdays among 32 bits would give more than 100 equal pairs.
NAMES = product(("step-noise", "message-noise"), range(500), range(10), range(2), range(50))


def first_words(generator: np.random.Generator) -> list[int]:
    return generator.bit_generator.random_raw(4).tolist()


def test_no_two_of_a_million_keys_are_equal():
    streams = seeded(0, b"some configuration").noise
    keys = {streams.key(*name) for name in NAMES}
    assert len(keys) == 10**6
    assert {len(key) for key in keys} == {16}


def test_a_stream_is_philox_with_the_whole_key():
    """The splits, minibatches and initial weights of a seed are those they have always been."""
    key = int.from_bytes(blake2b(b"3|minibatch|7|2", digest_size=16).digest(), "little")
    expected = np.random.Generator(np.random.Philox(key=key)).random(5)
    assert np.array_equal(generator(3, "minibatch", 7, 2).random(5), expected)
    assert np.array_equal(seeded(3, b"").sampling.generator("minibatch", 7, 2).random(5), expected)


def test_every_part_of_a_name_counts():
    names = [
        KeyedStreams(1).key("a"),
        KeyedStreams(1).key("a", 2),
        KeyedStreams(1).key("a", 2, 3),
        KeyedStreams(1).key("a", 23),
        KeyedStreams(1).key("a2"),
        KeyedStreams(12).key("a"),
        KeyedStreams(1, b"x").key("a", 2),
        KeyedStreams(1, b"y").key("a", 2),
    ]
    assert len(set(names)) == len(names)
    with pytest.raises(ValueError, match="without |"):
        KeyedStreams(1).key("a|2")
    assert KeyedStreams(1).key("a", np.int64(2)) == KeyedStreams(1).key("a", 2)


def test_releases_share_who_is_drawn_and_no_noise():
    one, other, again = (seeded(0, released) for released in (b"one", b"other", b"one"))
    name = ("anything", 1, 2)
    assert first_words(one.noise.generator(*name)) == first_words(again.noise.generator(*name))
    assert first_words(one.noise.generator(*name)) != first_words(other.noise.generator(*name))
    drawn = [first_words(r.sampling.generator(*name)) for r in (one, other)]
    assert drawn[0] == drawn[1]
