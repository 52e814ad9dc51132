"""Calls by hand: so many open at once for an account, whatever others have open (D-105)."""

from uuid import uuid4

import pytest

from fatura.domain.errors import RATE_LIMITED, EngineError
from fatura.usecases.pricing.open_call_limit import MOST_OPEN, CallsByHand


def test_an_account_has_so_many_open_at_once() -> None:
    """[D-105]"""
    calls, account_id, other = CallsByHand(), uuid4(), uuid4()
    with calls.opened(account_id, MOST_OPEN - 1):
        calls.check(account_id, 1)
        calls.check(other, MOST_OPEN)
        with pytest.raises(EngineError) as refused:
            calls.check(account_id, 2)
        assert refused.value.problem is RATE_LIMITED
        assert refused.value.retry_after_seconds == 10
    calls.check(account_id, MOST_OPEN)
