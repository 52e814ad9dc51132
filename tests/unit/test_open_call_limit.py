"""Each account has its own limit on concurrent price calls by `retry-pricing` and `pricing-test` (D-105)."""

from uuid import uuid4

import pytest

from fatura.domain.errors import RATE_LIMITED, EngineError
from fatura.usecases.open_call_limit import MAX_OPEN_CALLS, OpenCallLimit


def test_calls_above_an_accounts_limit_are_refused() -> None:
    """[D-105]"""
    limit, account_id, other = OpenCallLimit(MAX_OPEN_CALLS, "calls"), uuid4(), uuid4()
    with limit.opened(account_id, MAX_OPEN_CALLS - 1):
        limit.check(account_id, 1)
        limit.check(other, MAX_OPEN_CALLS)
        with pytest.raises(EngineError) as refused:
            limit.check(account_id, 2)
        assert refused.value.problem is RATE_LIMITED
        assert refused.value.retry_after_seconds == 10
    limit.check(account_id, MAX_OPEN_CALLS)
