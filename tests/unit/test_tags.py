"""The tags in connection ids, the ids of requests, and the memory of refused API keys."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.domain.credentials import Mode, ParsedKey
from fatura.domain.tags import Tagger
from fatura.ids import new_id
from fatura.usecases.remembered_keys import MOST_REMEMBERED, REFUSED_SECONDS, RememberedKeys

NOW = datetime(2026, 11, 27, tzinfo=UTC)
TAGGER = Tagger(bytes(range(32)))
ACCOUNT, OTHER = new_id(NOW), new_id(NOW)


def test_a_connection_id_is_a_uuid_that_sorts_by_time():
    """[D-241]"""
    ids = [
        TAGGER.tagged_connection_id(new_id(NOW + timedelta(milliseconds=number)), account_id=ACCOUNT)
        for number in range(100)
    ]
    assert ids == sorted(ids)
    assert {(each.version, each.variant) for each in ids} == {(7, "specified in RFC 4122")}


def test_ids_of_the_same_instant_differ():
    """[D-241]"""
    ids = {TAGGER.tagged_connection_id(new_id(NOW), account_id=ACCOUNT) for _ in range(100)}
    assert len(ids) == 100


def test_an_id_is_recognized_in_its_own_account_and_installation_only():
    """[D-241]"""
    made = TAGGER.tagged_connection_id(new_id(NOW), account_id=ACCOUNT)
    assert TAGGER.is_connection_id(made, account_id=ACCOUNT)
    assert not TAGGER.is_connection_id(made, account_id=OTHER)
    assert not Tagger(bytes(32)).is_connection_id(made, account_id=ACCOUNT)


@pytest.mark.parametrize("bit", [0, 17, 47, 48, 61, 64, 75, 80, 127])
def test_an_id_with_a_changed_bit_is_not_recognized(bit: int):
    """[D-241]"""
    made = TAGGER.tagged_connection_id(new_id(NOW), account_id=ACCOUNT)
    assert not TAGGER.is_connection_id(UUID(int=made.int ^ 1 << bit), account_id=ACCOUNT)


@given(st.uuids())
def test_no_other_id_is_recognized(guessed: UUID):
    """[D-241]"""
    assert not TAGGER.is_connection_id(guessed, account_id=ACCOUNT)


def test_the_id_of_a_request_depends_on_all_that_must_differ():
    """[D-53 once, D-228]"""
    made = TAGGER.request_id("refund", ACCOUNT, key="key")
    assert made == TAGGER.request_id("refund", ACCOUNT, key="key")
    assert (made.version, made.variant) == (5, "specified in RFC 4122")
    others = {
        TAGGER.request_id("refund", ACCOUNT, key="k"),
        TAGGER.request_id("refund", OTHER, key="key"),
        TAGGER.request_id("reissue", ACCOUNT, key="key"),
        Tagger(bytes(32)).request_id("refund", ACCOUNT, key="key"),
        uuid5(ACCOUNT, "refund key"),
    }
    assert made not in others
    assert len(others) == 5


def _key(secret_hash: bytes) -> ParsedKey:
    return ParsedKey(ACCOUNT, Mode.LIVE, secret_hash)


def test_a_refused_key_is_remembered_for_a_minute():
    """[D-240]"""
    seconds = [1000.0]
    refused = RememberedKeys(REFUSED_SECONDS, clock=lambda: seconds[0])
    refused.add(_key(b"one"))
    assert _key(b"one") in refused
    assert _key(b"other") not in refused
    seconds[0] += REFUSED_SECONDS
    assert _key(b"one") not in refused
    refused.add(_key(b"other"))
    assert list(refused._until) == [b"other"]


def test_a_limited_number_of_refused_keys_is_remembered():
    """[D-240]"""
    refused = RememberedKeys(REFUSED_SECONDS, clock=lambda: 0.0)
    for number in range(MOST_REMEMBERED + 5):
        refused.add(_key(number.to_bytes(4)))
    assert len(refused._until) == MOST_REMEMBERED
    assert _key((MOST_REMEMBERED + 4).to_bytes(4)) in refused
    assert _key((4).to_bytes(4)) not in refused
