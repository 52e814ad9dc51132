"""UUIDv7 ids that contain the time of the account's clock."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from fatura.ids import billed_mark, invoice_ids, mark_of, new_id, new_ids

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANTS = st.timedeltas(timedelta(days=10_000), timedelta(days=80_000)).map(EPOCH.__add__)


@given(INSTANTS)
def test_an_id_carries_its_instant(at):
    """[spec 2.1 ids]"""
    made = new_id(at)
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    carried = EPOCH + timedelta(milliseconds=made.int >> 80)
    assert carried == at.replace(microsecond=at.microsecond // 1000 * 1000)


@given(INSTANTS, st.integers(1, 10**10))
def test_later_ids_are_greater(at, milliseconds):
    """The timestamp of an id is the given instant and does not depend on earlier ids.

    An account whose clock is ahead does not influence the ids of other accounts.
    """
    assert new_id(at) < new_id(at + timedelta(milliseconds=milliseconds))


def test_a_batch_of_one_instant_has_distinct_ids():
    made = new_ids(datetime(2026, 12, 10, tzinfo=UTC), 50_000)
    assert len(set(made)) == len(made)
    assert {each.int >> 80 for each in made} == {made[0].int >> 80}


@given(INSTANTS, st.uuids(), st.integers(1, 2**31 - 1))
def test_an_invoice_id_encodes_subscription_and_cycle(at, subscription_id, cycle):
    """[D-123]"""
    [made] = invoice_ids(at, [(subscription_id, cycle)])
    assert (made.version, made.variant) == (7, "specified in RFC 4122")
    assert made.int >> 80 == new_id(at).int >> 80
    assert mark_of(made) == billed_mark(subscription_id, cycle)


def test_encoded_bits_differ_by_subscription_and_cycle():
    """The encoding must never change, because gateways store the ids. [D-123]"""
    subscriptions = [UUID(int=number) for number in range(300)]
    marks = {billed_mark(each, cycle) for each in subscriptions for cycle in range(1, 101)}
    assert len(marks) == 30_000
    [known] = invoice_ids(datetime(2026, 12, 10, tzinfo=UTC), [(UUID(int=1), 1)])
    assert str(known) == "01a25d3f-ec00-7a16-9446-8ccd74041ac1"
