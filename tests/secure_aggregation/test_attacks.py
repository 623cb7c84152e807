"""What the wire and a coalition learn, and that each check finds the build that lets them.

All entropy has fixed seeds, so each of these tests either fails always or never; the rates in the
comments say how likely a correct build was to fail when the seeds were chosen.
"""

from base64 import b64encode

import numpy as np
import pytest
from scipy.stats import chi2, chisquare, ks_2samp
from tests.secure_aggregation.rounds import (
    cancel_pairs,
    exact_sum,
    inputs_of,
    play,
    seeded,
    terms_of,
)

from m2fdp.secure_aggregation import keys
from m2fdp.secure_aggregation import terms as grid
from m2fdp.secure_aggregation.keys import rebuild_all
from m2fdp.secure_aggregation.messages import MaskedVector
from m2fdp.secure_aggregation.protocol import point, secure_sum
from m2fdp.secure_aggregation.terms import Group, Input, Scale, Stage, Terms, decode, encode


def byte_statistic(words: np.ndarray) -> float:
    """Chi squared, of 255 degrees of freedom, of the counts of 256 byte values."""
    return chisquare(np.bincount(words.view(np.uint8).ravel(), minlength=256)).statistic


def looks_uniform(words: np.ndarray) -> bool:
    """False for uniform words with probability 1e-4."""
    return chi2.sf(byte_statistic(words), 255) > 1e-4


def without_coalition(vectors, terms, seed: int) -> np.ndarray:
    """What the server and members 3 and 4 of five have left of the others' vectors: (3, M).

    They take away all masks that they know: the survivors' own ones, which all may know in the
    end, and those of pairs with 3 or 4.
    """
    played = play(terms, [Input(one) for one in vectors], seeded(seed))
    held = {point(one.sender): one.own_masks for one in played.unmask()}
    own = rebuild_all(held, terms.group.threshold)
    left = []
    for u in (0, 1, 2):
        words = played.vectors[u].words.copy()
        keys.take_own_mask(words, keys.own_key(own[u], terms))
        for colluder in (3, 4):
            pair = played.members[colluder]._masking
            key = keys.pair_key(pair, played.roster.keys[u].masking, u, terms)
            keys.add_pair_mask(words, key, colluder, u)
        left.append(words)
    return np.stack(left)


def p_values(sums_differ: bool) -> list[float]:
    """That projections of what is left have one law for two inputs: Kolmogorov and Smirnov's.

    120 rounds of each input. 40 projections are random combinations of all words modulo 2^32, and
    10 of their sums over the members, which are all that may tell.
    """
    terms = terms_of(5, 3, n_parameters=8, deviation=0.0)
    nothing, some = np.zeros(8), np.full(8, 0.25)
    inputs = [
        [some, -some, nothing, some, some],
        [some if sums_differ else nothing, nothing, nothing, some, some],
    ]
    left = [
        np.stack([without_coalition(given, terms, 1000 * world + k) for k in range(120)])
        for world, given in enumerate(inputs)
    ]
    rng = np.random.default_rng(0)
    weights = rng.integers(-3, 4, size=(50, 3, 8))
    weights[40:] = weights[40:, :1]
    projected = [
        np.einsum("rum,pum->pr", words.astype(np.int64), weights) % 2**32 for words in left
    ]
    return [float(ks_2samp(one, other).pvalue) for one, other in zip(*projected, strict=True)]


# Each check is of a whole build: True if what it asks holds.


def sum_is_exact() -> bool:
    """The survivors' sum is that of their integers, with and without a dropout."""
    terms = terms_of(5)
    inputs = inputs_of(terms)
    for gone in ({}, {1: Stage.VECTOR}):
        values = secure_sum(terms, inputs, gone, entropy=seeded(1)).values
        kept = [one for u, one in enumerate(inputs) if u not in gone]
        if not np.array_equal(values, exact_sum(kept, terms)):
            return False
    return True


def masked_vectors_are_uniform() -> bool:
    """Every member's, of zero vectors, in 40 rounds.

    A right build fails with probability 0.012 for the 120 vectors and below 1e-4 for their mean,
    whose standard error is 2.1.
    """
    terms = terms_of(3, n_parameters=1000)
    zeros = [Input(np.zeros(1000))] * 3
    heard: list[np.ndarray] = []

    def hear(message):
        if isinstance(message, MaskedVector):
            heard.append(message.words.copy())

    for repetition in range(40):
        secure_sum(terms, zeros, entropy=seeded(repetition), tap=hear)
    mean = np.mean([byte_statistic(words) for words in heard])
    return all(looks_uniform(words) for words in heard) and abs(mean - 255) < 15


def transcripts_are_alike() -> bool:
    """Two inputs of one sum can't be told apart by the server and t - 1 members.

    Kolmogorov and Smirnov's test on 50 projections, at 1e-3 over all of them.
    """
    return min(p_values(sums_differ=False)) > 1e-3 / 50


def late_vector_stays_hidden() -> bool:
    """A vector that arrives after its sender was said to be silent (Bonawitz et al. 2017, Sec. 4).

    The server has then rebuilt the key of its pair masks.
    """
    terms = terms_of(4, 3, n_parameters=1000)
    inputs = inputs_of(terms)
    played = play(terms, inputs)
    held = {point(one.sender): one.masking_keys for one in played.unmask(late=[0])}
    left = played.vectors[0].words.copy()
    cancel_pairs(left, rebuild_all(held, 3)[0], 0, played.roster, terms)
    return looks_uniform(left) and not np.array_equal(left, encode(inputs[0], terms))


def rounds_share_nothing() -> bool:
    """A device whose generator repeats itself masks differently in every round and group."""
    group = terms_of(3, n_parameters=1000)
    settings = [
        group,
        terms_of(3, n_parameters=1000, label="run 1, round 2"),
        Terms(Group("zone 1", 3, 3), group.scale, 1000, group.label),
    ]
    inputs = inputs_of(group)
    first, *others = (play(terms, inputs, seeded(1)).vectors for terms in settings)
    return all(looks_uniform(first[u].words - other[u].words) for other in others for u in range(3))


def seeds_are_long(draws: int = 2**16) -> bool:
    """No two pairs of members have the same mask.

    8 are expected to coincide of 2^16 seeds of 28 bits, or of 2^18 of 32 bits: none does with
    probability 3e-4. A right build fails with probability below 1e-27.
    """
    terms = terms_of(3)
    source = seeded(0)
    seen: set[bytes] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "agree", lambda *_: source(32))
        for drawn in range(draws):
            seen.add(keys.keystream(keys.pair_key(None, b"", 1, terms), 4).tobytes())
            if len(seen) == drawn:
                return False
    return True


def norms_never_grow() -> bool:
    """Of 200 vectors on and off the grid; up to the last bit of float64."""
    rng = np.random.default_rng(0)
    terms = Terms(Group("zone 0", 100, 67), Scale(1.0, 500.0), 20, "round 1")  # a coarse grid
    for _ in range(200):
        vector = rng.normal(size=20)
        vector *= rng.random() / np.linalg.norm(vector)
        decoded = decode(encode(Input(vector), terms), terms.points)
        if np.linalg.norm(decoded) > np.linalg.norm(vector) * (1 + 1e-15):
            return False
    return True


CHECKS = [
    sum_is_exact,
    masked_vectors_are_uniform,
    transcripts_are_alike,
    late_vector_stays_hidden,
    rounds_share_nothing,
    seeds_are_long,
    norms_never_grow,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_build_is_right(check):
    assert check()


def always_added(words, key, member, other):
    words += keys.keystream(key, len(words))


def nothing(words, *_):
    pass


def folded(pair, public, owner, terms):
    """To 32 bits, and stretched again."""
    return keys.derive(_fold(keys.agree(pair, public, owner)), "pair mask", terms)


def folded_text(pair, public, owner, terms):
    """As flwr 1.41: the secret is in base 64, so that no byte has its highest bit."""
    text = b64encode(keys.agree(pair, public, owner))
    return keys.derive(_fold(text), "pair mask", terms)


def _fold(text):
    return np.bitwise_xor.reduce(np.frombuffer(text, dtype=np.uint32)).tobytes()


def purpose_alone(purpose, _):
    return purpose.encode()


def away_from_zero(vector, points):
    return np.sign(vector) * np.ceil(np.abs(vector) * points)


BROKEN = {
    "masks that do not cancel": (sum_is_exact, [(keys, "add_pair_mask", always_added)]),
    "own masks that are not taken away": (sum_is_exact, [(keys, "take_own_mask", nothing)]),
    "no masks": (
        masked_vectors_are_uniform,
        [(keys, name, nothing) for name in ("add_pair_mask", "add_own_mask", "take_own_mask")],
    ),
    "own masks alone": (transcripts_are_alike, [(keys, "add_pair_mask", nothing)]),
    "pair masks alone": (
        late_vector_stays_hidden,
        [(keys, "add_own_mask", nothing), (keys, "take_own_mask", nothing)],
    ),
    "one info for all rounds": (
        rounds_share_nothing,
        [(keys, "info", purpose_alone)],
    ),
    "seeds of 28 bits": (seeds_are_long, [(keys, "pair_key", folded_text)]),
    "truncation away from zero": (norms_never_grow, [(grid, "truncated", away_from_zero)]),
    "rounding": (norms_never_grow, [(grid, "truncated", lambda x, f: np.rint(x * f))]),
}


@pytest.mark.parametrize("check, patches", BROKEN.values(), ids=BROKEN)
def test_a_broken_build_is_found(check, patches, monkeypatch):
    for module, name, broken in patches:
        monkeypatch.setattr(module, name, broken)
    assert not check()


@pytest.mark.full
def test_seeds_of_32_bits_are_found(monkeypatch):
    assert seeds_are_long(2**18)
    monkeypatch.setattr(keys, "pair_key", folded)
    assert not seeds_are_long(2**18)


def test_different_sums_are_told_apart():
    """By the sums alone: the server is to read them."""
    told = p_values(sums_differ=True)
    assert min(told[:40]) > 1e-3 / 40
    assert max(told[40:]) < 1e-6


def test_t_colluders_read_a_vector_and_fewer_have_too_few_shares():
    """So t must be above the number of those who collude."""
    terms = terms_of(5, 3, n_parameters=8)
    inputs = inputs_of(terms)
    played = play(terms, inputs)
    held = {
        point(v): {"seed": shares[0], "key": shares[1]}
        for v in (1, 2, 3)
        for shares in [played.members[v]._held[0]]
    }
    rebuilt = rebuild_all(held, 3)
    words = played.vectors[0].words.copy()
    keys.take_own_mask(words, keys.own_key(rebuilt["seed"], terms))
    cancel_pairs(words, rebuilt["key"], 0, played.roster, terms)
    np.testing.assert_array_equal(words, encode(inputs[0], terms))
    fewer = rebuild_all({x: held[x] for x in list(held)[:2]}, 2)
    assert rebuilt["key"] != fewer["key"] and rebuilt["seed"] != fewer["seed"]
