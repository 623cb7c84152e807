"""Whole rounds: exact sums of whoever stays, every way to end without one, and bytes by formula and
as they are sent."""

import logging
import os
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.secure_sums import size
from tests.secure_aggregation.rounds import changed, exact_sum, inputs_of, play, seeded, terms_of

from m2fdp.core.errors import InputError
from m2fdp.secure_aggregation.messages import (
    BelowThreshold,
    InputRefused,
    KeyRefused,
    Mailbox,
    MaskedVector,
    MessageRefused,
    OutOfTurn,
    ProtocolError,
    PublicKeys,
    Roster,
    SealedShares,
    TamperedShare,
    UnmaskRefused,
    UnmaskRequest,
    UnmaskShares,
)
from m2fdp.secure_aggregation.model_sums import overhead_bits
from m2fdp.secure_aggregation.protocol import Member, Server, secure_sum
from m2fdp.secure_aggregation.terms import Group, Input, Stage


def rounds():
    """Members, threshold, whoever falls silent when, and who has no input."""
    for n in (2, 3, 10):
        for dropouts in range(n - 2 * n // 3):
            gone = np.random.default_rng(n).permutation(n)[:dropouts].tolist()
            yield n, None, dict.fromkeys(gone, Stage.VECTOR), ()
    for gone in (0, 16):
        yield 50, None, dict.fromkeys(range(3, 3 * gone + 3, 3), Stage.VECTOR), ()
    yield from ((10, None, dict.fromkeys((0, 4, 9), stage), ()) for stage in Stage)
    yield 11, 7, dict(zip((2, 5, 7, 8), Stage, strict=True)), ()
    yield 10, None, {6: Stage.SHARES, 8: Stage.UNMASKING}, (1, 6, 8)


@pytest.mark.parametrize("n, threshold, gone, without", list(rounds()))
def test_the_sum_is_that_of_the_survivors_to_the_last_bit(n, threshold, gone, without):
    terms = terms_of(n, threshold)
    inputs = inputs_of(terms)
    entries = [None if u in without else one for u, one in enumerate(inputs)]
    total = secure_sum(terms, entries, gone)
    # Who falls silent after its vector is in the sum.
    stay = [u for u in range(n) if gone.get(u, Stage.UNMASKING) is Stage.UNMASKING]
    assert total.survivors == tuple(u for u in stay if u not in without)
    survivors = [inputs[u] for u in total.survivors]
    np.testing.assert_array_equal(total.values, exact_sum(survivors, terms))
    floats = sum(one.vector + one.noise for one in survivors)
    assert np.abs(total.values - floats).max() <= n / terms.points


def test_sums_do_not_depend_on_the_entropy_and_masked_vectors_do():
    terms = terms_of(5)
    inputs = inputs_of(terms)
    sums, masked = [], set()
    for entropy in (seeded(1), seeded(2), os.urandom, bytes):

        def heard(message):
            if isinstance(message, MaskedVector):
                masked.add(message.words.tobytes())

        if entropy is bytes:  # all the same keys: refused, not a sum under zero masks
            with pytest.raises(BelowThreshold):
                secure_sum(terms, inputs, entropy=entropy, tap=heard)
        else:
            sums.append(secure_sum(terms, inputs, entropy=entropy, tap=heard).values)
    assert len(masked) == 15
    for values in sums[1:]:
        np.testing.assert_array_equal(values, sums[0])


@pytest.mark.parametrize("stage", Stage)
def test_below_the_threshold_there_is_no_sum(stage, caplog):
    terms = terms_of(10, 7)
    inputs = inputs_of(terms)
    heard = []
    with caplog.at_level(logging.DEBUG), pytest.raises(BelowThreshold) as error:
        secure_sum(terms, inputs, dict.fromkeys([1, 2, 3, 4], stage), tap=heard.append)
    lost = error.value
    assert (lost.group, lost.alive, lost.threshold) == ("zone 0", 6, 7)
    # A user reads one line of it; and nobody anything of the round.
    assert isinstance(lost, InputError)
    assert str(lost) == (
        "secure_aggregation.threshold = 7: 6 senders are left in zone 0: a lower threshold (above "
        "half of them), fewer dropouts"
    )
    assert caplog.text == ""
    assert vars(lost).keys() == {"group", "alive", "threshold", "key", "value", "remedy"}
    unmasking = [one for one in heard if isinstance(one, UnmaskShares)]
    # Only where all vectors have come are shares of own masks sent, fewer than rebuild one.
    assert len(unmasking) == (6 if stage is Stage.UNMASKING else 0)
    assert not any(isinstance(one, UnmaskRequest) for one in heard) or stage is Stage.UNMASKING


BAD = {"nan": np.full(20, np.nan), "inf": np.full(20, np.inf), "too long": np.zeros(21)}


@pytest.mark.parametrize("vector", BAD.values(), ids=BAD)
def test_a_device_does_not_mask_what_it_must_not(vector):
    terms = terms_of(10)
    inputs = inputs_of(terms)
    inputs[4] = Input(vector)
    total = secure_sum(terms, inputs, {7: Stage.VECTOR})
    assert total.survivors == (0, 1, 2, 3, 5, 6, 8, 9)
    survivors = [inputs[u] for u in total.survivors]
    np.testing.assert_array_equal(total.values, exact_sum(survivors, terms))
    assert list(total.refused) == [4]


@pytest.mark.parametrize(
    "n, threshold, text",
    [
        (1, 1, "secure_aggregation.layers = 'zone 0': adds up 1 message, which hides nothing"),
        (10, 5, "secure_aggregation.threshold = 5: must be from 6 to 10 for the 10 senders"),
        (10, 11, "secure_aggregation.threshold = 11: must be from 6 to 10"),
        (2, 1, "secure_aggregation.threshold = 1: must be from 2 to 2"),
        (3, 1, "secure_aggregation.threshold = 1: must be from 2 to 3"),
    ],
)
def test_groups_that_hide_nothing(n, threshold, text):
    with pytest.raises(InputError) as error:
        Group("zone 0", n, threshold)
    assert str(error.value).startswith(text)


def without_key(number):
    """A wire on which one member's sealing key is none."""
    no_key = {"sealing": bytes(32)}
    return changed(PublicKeys, lambda one: replace(one, **no_key if one.sender == number else {}))


@pytest.mark.parametrize(
    "changes, refused",
    [
        ({2: lambda keys: {"sealing": bytes(32)}}, {2: "of low order, or none"}),
        ({2: lambda keys: {"masking": bytes(32)}}, {2: "of low order, or none"}),
        ({2: lambda keys: vars(keys[0]) | {"sender": 2}}, {0: "shown twice", 2: "shown twice"}),
    ],
    ids=["sealing", "masking", "one key"],
)
def test_devices_with_keys_that_no_honest_one_has_are_out(changes, refused):
    terms = terms_of(5, 3)
    inputs, announced = inputs_of(terms), {}

    def change(message):
        announced[message.sender] = message
        forge = changes.get(message.sender)
        return replace(message, **forge(announced)) if forge else message

    played = play(terms, inputs, change=changed(PublicKeys, change))
    assert played.server.refused == refused
    values = played.server.read(played.unmask())
    stay = [one for u, one in enumerate(inputs) if u not in refused]
    np.testing.assert_array_equal(values, exact_sum(stay, terms))


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda keys: [*keys[:3], replace(keys[3], sealing=bytes(32))], "of low order"),
        (lambda keys: [*keys[:3], replace(keys[3], masking=keys[1].masking)], "shown twice"),
        (lambda keys: [replace(keys[0], masking=keys[0].sealing), *keys[1:]], "not its own"),
    ],
)
def test_members_refuse_a_roster_that_the_server_has_not_checked(change, reason):
    wire = changed(Roster, lambda roster: Roster(tuple(change(roster.keys))))
    with pytest.raises(KeyRefused, match=reason):
        play(terms_of(4), change=wire)


def flipped(shares):
    """Of member 3's, the last bit of what it sealed for member 0."""
    (to, sealed), *rest = shares.parcels
    if shares.sender != 3:
        return shares
    return replace(shares, parcels=((to, sealed[:-1] + bytes([sealed[-1] ^ 1])), *rest))


def renamed(sender):
    """Of the last parcel in member 0's mailbox, its sender."""

    def change(mailbox):
        (_, sealed), *rest = mailbox.parcels[::-1]
        parcels = ((sender, sealed), *rest)
        return mailbox if mailbox.recipient else replace(mailbox, parcels=parcels)

    return change


@pytest.mark.parametrize(
    "kind, change, sender",
    [(SealedShares, flipped, 3), (Mailbox, renamed(1), 1), (Mailbox, renamed(9), 9)],
    ids=["tampered", "another's name", "nobody's name"],
)
def test_a_share_that_its_sender_did_not_seal_names_it(kind, change, sender):
    with pytest.raises(TamperedShare, match=f"member {sender}") as error:
        play(terms_of(4), change=changed(kind, change))
    assert (error.value.sender, error.value.recipient) == (sender, 0)


@pytest.mark.parametrize(
    "kind, shorten",
    [
        (Roster, lambda roster: Roster(roster.keys[:2])),
        (Mailbox, lambda mailbox: replace(mailbox, parcels=mailbox.parcels[:1])),
    ],
)
def test_members_mask_nothing_for_too_few(kind, shorten):
    with pytest.raises(BelowThreshold) as error:
        play(terms_of(4, 3), change=changed(kind, shorten))
    assert error.value.alive == 2


@pytest.mark.parametrize(
    "survivors, silent, reason",
    [
        ((0, 1, 2, 3), (3, 4), "both shares of one member"),
        ((0, 1, 2, 3, 4), (4,), "both shares of one member"),
        ((0, 1, 2), (3, 4), "a sum of too few"),
        ((0, 1, 2, 3), (), "not those who have shared"),
        ((0, 1, 2, 3), (4, 5), "not those who have shared"),
        ((1, 2, 3, 4), (0,), "it is said to have fallen silent"),
    ],
)
def test_requests_that_would_show_more_than_a_sum(survivors, silent, reason):
    # Member 5 does not take part.
    member = play(terms_of(6, 4), change=without_key(5)).members[0]
    with pytest.raises(UnmaskRefused, match=reason):
        member.unmask(UnmaskRequest(survivors, silent))
    # Whoever has asked for that gets nothing of a better request either.
    with pytest.raises(UnmaskRefused, match="once"):
        member.unmask(UnmaskRequest((0, 1, 2, 3, 4), ()))


def test_every_step_is_done_once_and_in_its_turn():
    terms = terms_of(3)
    inputs, played = inputs_of(terms), play(terms)
    member, mailbox = played.members[0], played.mailboxes[0]
    with pytest.raises(OutOfTurn, match="keys"):
        member.announce()
    with pytest.raises(OutOfTurn, match="shares"):
        member.share(played.roster)
    # Two vectors under one mask would show their difference.
    with pytest.raises(OutOfTurn, match="vector"):
        member.mask(mailbox, inputs[1])
    early = Member(terms, 0, seeded(0))
    with pytest.raises(OutOfTurn):
        early.share(played.roster)
    with pytest.raises(OutOfTurn):
        early.mask(mailbox, inputs[0])
    with pytest.raises(UnmaskRefused, match="after its vector"):
        early.unmask(UnmaskRequest((0, 1, 2), ()))


def test_a_device_that_has_refused_its_input_says_nothing_more():
    terms = terms_of(3, 2)
    inputs, good = inputs_of(terms), play(terms)
    member = Member(terms, 0, seeded(1))
    # The same keys as those on the roster: the first member's of the same entropy.
    member.announce()
    member.share(good.roster)
    with pytest.raises(InputRefused, match="member 0: it is not finite"):
        member.mask(good.mailboxes[0], Input(BAD["nan"]))
    with pytest.raises(OutOfTurn):
        member.mask(good.mailboxes[0], inputs[0])
    with pytest.raises(UnmaskRefused):
        member.unmask(UnmaskRequest((0, 1, 2), ()))


def of(played, change):
    """The first masked vector with other words."""
    first, *others = played.vectors.values()
    return [MaskedVector(first.sender, change(first.words)), *others]


@pytest.mark.parametrize(
    "vectors, reason",
    [
        (lambda p: of(p, lambda words: words[:1]), r"0: its words are uint32 \(1,\), not uint32"),
        (lambda p: of(p, lambda words: words[:, None]), r"0: its words are uint32 \(20, 1\)"),
        (lambda p: of(p, lambda words: words.astype(np.uint16)), "0: its words are uint16"),
        (lambda p: [*p.vectors.values(), p.vectors[1]], "1: a second one"),
        (lambda p: [*p.vectors.values(), MaskedVector(9, p.vectors[1].words)], "9: nobody asked"),
        (lambda p: [*p.vectors.values(), MaskedVector(4, p.vectors[1].words)], "4: nobody asked"),
    ],
)
def test_the_server_adds_one_whole_vector_of_each_who_has_shared(vectors, reason):
    """A word alone would be added to all; a member's second vector would count it twice."""
    # Member 4 has no part in the round.
    played = play(terms_of(5, 3), change=without_key(4))
    with pytest.raises(MessageRefused, match=f"^the message of member {reason}"):
        played.server.request(vectors(played))
    assert issubclass(MessageRefused, ProtocolError)


def test_the_server_takes_other_messages_once_too():
    terms = terms_of(4, 3)
    keys = [Member(terms, u, seeded(u)).announce() for u in range(4)]
    for announced, reason in (([*keys, keys[2]], "2: a second"), ([replace(keys[0], sender=4)], 4)):
        with pytest.raises(MessageRefused, match=f"member {reason}"):
            Server(terms).roster(announced)

    for change, reason in (
        (lambda one: replace(one, sender=1), "1: its shares are not one for each"),
        (lambda one: replace(one, parcels=one.parcels[1:]), "0: its shares are not one for each"),
        (lambda one: replace(one, parcels=one.parcels[:1] * 3), "0: its shares are not one for"),
    ):
        with pytest.raises(MessageRefused, match=reason):
            play(terms, change=changed(SealedShares, change))

    played = play(terms)
    answers = played.unmask(late=[3])
    for late, reason in (
        ([*answers, answers[1]], "1: a second one"),
        ([*answers, replace(answers[1], sender=3)], "3: nobody asked"),
        ([replace(answers[0], own_masks={})], "0: its shares are not of whom"),
        ([replace(answers[0], masking_keys=answers[0].own_masks)], "0: its shares are not of whom"),
    ):
        with pytest.raises(MessageRefused, match=reason):
            played.server.read(late)


def test_messages_show_no_secret():
    played = play(terms_of(3))
    answers = played.unmask()
    shown = repr([*played.vectors.values(), *answers, played.members, played.server])
    assert str(answers[0].own_masks[1]) not in shown
    assert "words" not in shown and "own_masks" not in shown


# Traffic.


def test_traffic_by_hand():
    # 10 members: two keys of 32 bytes; 9 parcels of an id, two shares of 33 bytes and a tag of 16;
    # 10 shares with an id.
    assert overhead_bits(10) == 8 * (64 + 9 * (4 + 66 + 16) + 10 * (4 + 33))


@pytest.mark.parametrize("n", [2, 6, 11])
def test_members_send_what_the_formula_says(n):
    terms, sent = terms_of(n), []
    secure_sum(terms, inputs_of(terms), tap=sent.append)
    of_members = [one for one in sent if not isinstance(one, Roster | Mailbox | UnmaskRequest)]
    assert len(of_members) == 4 * n
    assert 8 * sum(map(size, of_members)) == n * (overhead_bits(n) + 32 * terms.n_parameters)


def test_zones_send_less_than_one_large_group():
    """H Sec. IV-A: s zones of m, and one group of s, against one of s·m."""
    zones, servers = 50 * overhead_bits(5), 10 * overhead_bits(10)
    assert 7 < 50 * overhead_bits(50) / (zones + servers) < 9
