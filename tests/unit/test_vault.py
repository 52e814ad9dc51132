"""Encryption of secrets: a value decrypts only in its own row and column, and only if the ring has the value's key."""

import base64
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.store.vault import KeyRingError, Vault, new_key

OLD, NEW = new_key(), new_key()
ACCOUNT, ROW = uuid4(), "row-1"
PLACE = "customer.document_sealed"


def seal(vault: Vault, plain: bytes = b"529.982.247-25") -> bytes:
    return vault.seal(plain, place=PLACE, account_id=ACCOUNT, row_id=ROW)


def opened(vault: Vault, sealed: bytes, *, place=PLACE, account_id=ACCOUNT, row_id=ROW) -> bytes:
    return vault.open(sealed, place=place, account_id=account_id, row_id=row_id)


@given(st.binary(max_size=300))
def test_a_sealed_value_can_be_opened(plain):
    vault = Vault([NEW])
    sealed = seal(vault, plain)
    assert opened(vault, sealed) == plain
    assert len(plain) < 8 or plain not in sealed


def test_equal_secrets_have_different_ciphertexts():
    assert seal(Vault([NEW])) != seal(Vault([NEW]))


@pytest.mark.parametrize(
    "elsewhere",
    [{"place": "gateway_connection.credentials_sealed"}, {"account_id": UUID(int=7)}, {"row_id": "row-2"}],
)
def test_a_value_copied_to_another_place_does_not_open(elsewhere):
    with pytest.raises(KeyRingError, match="does not open"):
        opened(Vault([NEW]), seal(Vault([NEW])), **elsewhere)


def test_a_value_with_a_changed_byte_does_not_open():
    sealed = seal(Vault([NEW]))
    for place in range(len(sealed)):
        changed = bytes(byte ^ (at == place) for at, byte in enumerate(sealed))
        with pytest.raises(KeyRingError):
            opened(Vault([NEW]), changed)


@pytest.mark.parametrize("length", [0, 3, 4, 10, 16, 20])
def test_a_truncated_value_does_not_open(length):
    with pytest.raises(KeyRingError):
        opened(Vault([NEW]), seal(Vault([NEW]))[:length])


def test_older_keys_of_the_ring_open_their_values():
    """The first key of the ring encrypts new values."""
    sealed_old = seal(Vault([OLD]))
    ring = Vault([NEW, OLD])
    assert opened(ring, sealed_old) == b"529.982.247-25"
    assert opened(Vault([NEW]), seal(ring)) == b"529.982.247-25"


def test_a_missing_key_is_named():
    named = r"customer\.document_sealed was sealed with key [0-9a-f]{8}, .*FATURA_SECRET_KEYS, or the file secret_keys"
    with pytest.raises(KeyRingError, match=named):
        opened(Vault([NEW]), seal(Vault([OLD])))


@pytest.mark.parametrize(
    "ring",
    [
        [],
        [""],
        ["abc"],
        [base64.b64encode(bytes(31)).decode()],
        [base64.b64encode(bytes(33)).decode()],
        [NEW, "!" + OLD],
        ["é" * 44],
    ],
)
def test_a_missing_or_malformed_key_is_refused(ring):
    with pytest.raises(KeyRingError) as refused:
        Vault(ring)
    assert OLD not in str(refused.value)


def hashes(vault: Vault, plain: bytes = b"52998224725", *, place=PLACE, account_id=ACCOUNT):
    return vault.keyed_hashes(plain, place=place, account_id=account_id)


def test_each_key_of_the_ring_has_its_own_hash():
    """[D-130]"""
    assert hashes(Vault([NEW, OLD])) == [*hashes(Vault([NEW])), *hashes(Vault([OLD]))]
    ring = Vault([NEW, OLD])
    assert [each[:4] for each in hashes(ring)] == list(ring.key_ids)
    assert hashes(ring)[0][:4] == seal(ring)[:4]


@pytest.mark.parametrize("elsewhere", [{"place": "customer.name"}, {"account_id": UUID(int=7)}])
def test_equal_values_have_other_hashes_elsewhere(elsewhere):
    """[D-130]"""
    assert hashes(Vault([NEW]), **elsewhere) != hashes(Vault([NEW]))
    assert hashes(Vault([NEW]), b"11144477735") != hashes(Vault([NEW]))
