"""The limits of open price calls and of requests that wait for gateways, per account and in total (D-105, D-175)."""

from contextlib import ExitStack, suppress
from uuid import uuid4

import pytest

from fatura.api.http.connections import MAX_REQUESTS
from fatura.domain.errors import RATE_LIMITED, UNAVAILABLE, EngineError
from fatura.usecases.open_call_limit import (
    ALWAYS_ALLOWED,
    MAX_GATEWAY_REQUESTS,
    MAX_GATEWAY_REQUESTS_IN_ALL,
    MAX_OPEN_CALLS,
    MAX_OPEN_CALLS_IN_ALL,
    MAX_OPEN_REQUESTS_IN_ALL,
    OpenCallLimit,
)


def price_calls() -> OpenCallLimit:
    return OpenCallLimit(MAX_OPEN_CALLS, most_in_all=MAX_OPEN_CALLS_IN_ALL, what="calls")


def test_calls_above_an_accounts_limit_are_refused() -> None:
    """[D-105]"""
    limit, account_id, other = price_calls(), uuid4(), uuid4()
    with limit.places(account_id) as places:
        places.take(MAX_OPEN_CALLS - 1)
        limit.check(account_id, 1)
        limit.check(other, MAX_OPEN_CALLS)
        with pytest.raises(EngineError) as refused:
            limit.check(account_id, 2)
        assert refused.value.problem is RATE_LIMITED
        assert refused.value.retry_after_seconds == 10
    limit.check(account_id, MAX_OPEN_CALLS)


def test_a_repeated_transaction_counts_its_calls_once() -> None:
    limit, account_id = price_calls(), uuid4()
    with limit.places(account_id) as places:
        places.take(MAX_OPEN_CALLS)
        places.take(MAX_OPEN_CALLS)
        places.take(1)
        limit.check(account_id, MAX_OPEN_CALLS - 1)
    limit.check(account_id, MAX_OPEN_CALLS)


def test_a_repeated_transaction_keeps_its_calls_although_others_have_taken_the_rest() -> None:
    """[D-175]"""
    limit, account_id, other = OpenCallLimit(8, most_in_all=10, what="calls"), uuid4(), uuid4()
    with limit.places(account_id) as places, limit.places(other) as others:
        places.take(4)
        others.take(3)
        places.take(4)
        with pytest.raises(EngineError):
            places.take(5)
    limit.check(account_id, 8)


def test_many_accounts_leave_places_to_others() -> None:
    """Each of 30 accounts starts as many requests as it may. Another account can still start ten. [D-175]"""
    limit = OpenCallLimit(MAX_GATEWAY_REQUESTS, most_in_all=MAX_GATEWAY_REQUESTS_IN_ALL, what="requests")
    accounts, held = [uuid4() for _ in range(30)], 0
    with ExitStack() as hanging:
        for each in accounts * MAX_GATEWAY_REQUESTS:
            with suppress(EngineError):
                hanging.enter_context(limit.one(each))
                held += 1
        assert 600 < held < MAX_GATEWAY_REQUESTS_IN_ALL
        with pytest.raises(EngineError) as refused:
            limit.check(accounts[0], 1)
        assert refused.value.problem is UNAVAILABLE
        limit.check(uuid4(), 10)
    limit.check(accounts[0], MAX_GATEWAY_REQUESTS)


def test_every_account_may_have_two_requests() -> None:
    """30 accounts, one after another, start as many requests as they may.

    Another account can still start two requests, but no third. [D-175]
    """
    limit = OpenCallLimit(MAX_GATEWAY_REQUESTS, most_in_all=MAX_GATEWAY_REQUESTS_IN_ALL, what="requests")
    with ExitStack() as hanging:
        for each in [uuid4() for _ in range(30)]:
            with suppress(EngineError):
                while True:
                    hanging.enter_context(limit.one(each))
        limit.check(uuid4(), ALWAYS_ALLOWED)
        with pytest.raises(EngineError) as refused:
            limit.check(uuid4(), ALWAYS_ALLOWED + 1)
        assert refused.value.problem is UNAVAILABLE


def test_requests_that_wait_leave_places_to_all_others() -> None:
    """[D-175]"""
    assert MAX_GATEWAY_REQUESTS_IN_ALL + MAX_OPEN_CALLS_IN_ALL <= 0.6 * MAX_REQUESTS


def test_open_requests_leave_places_to_requests_without_a_key() -> None:
    """[D-179]"""
    assert MAX_OPEN_REQUESTS_IN_ALL <= 0.8 * MAX_REQUESTS
