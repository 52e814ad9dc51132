"""The token buckets that limit requests and webhooks. [D-48, D-191]"""

import pytest

from fatura.api.http.rate_limits import MOST_REMEMBERED, RateLimiter
from fatura.domain.errors import RATE_LIMITED, EngineError
from tests.unit.tiny_api import OTHER_KEY, client_of, tiny_api


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def taken(limiter: RateLimiter, key: str = "key") -> int:
    """Return how many requests are accepted before the first refusal."""
    count = 0
    while True:
        try:
            limiter.take(key)
        except EngineError:
            return count
        count += 1


@pytest.mark.parametrize("rate", [1, 3, 7, 200, 1000])
def test_an_idle_key_may_burst_to_twice_the_rate(rate):
    """[D-48]"""
    watch = FakeClock()
    limiter = RateLimiter(rate, refusal="Slow down.", clock=watch)
    assert taken(limiter) == 2 * rate
    watch.seconds += 1
    assert taken(limiter) == rate
    watch.seconds += 100
    assert taken(limiter) == 2 * rate


def test_a_refusal_says_when_to_retry():
    """[D-48]"""
    watch = FakeClock()
    limiter = RateLimiter(1, refusal="Slow down.", clock=watch)
    assert taken(limiter) == 2
    with pytest.raises(EngineError) as refused:
        limiter.take("key")
    assert refused.value.problem is RATE_LIMITED
    assert refused.value.retry_after_seconds == 1
    watch.seconds += 1
    limiter.take("key")


def test_zero_is_no_limit():
    """[D-48]"""
    limiter = RateLimiter(0, refusal="Slow down.")
    for _ in range(10_000):
        limiter.take("key")


def test_a_limit_may_be_for_a_longer_period():
    """[D-192]"""
    watch = FakeClock()
    limiter = RateLimiter(600, refusal="Slow down.", period_seconds=60, clock=watch)
    assert taken(limiter) == 1200
    watch.seconds += 1
    assert taken(limiter) == 10


def test_the_keys_that_were_used_last_are_remembered():
    """[D-191]"""
    watch = FakeClock()
    limiter = RateLimiter(1, refusal="Slow down.", clock=watch)
    taken(limiter, "busy")
    for number in range(2 * MOST_REMEMBERED):
        limiter.take(f"key {number}")
        assert taken(limiter, "busy") == 0
    assert len(limiter._full_at) == MOST_REMEMBERED


async def test_429_comes_before_all_checks_but_401(monkeypatch):
    """[D-10, D-48]"""
    app = tiny_api(FATURA_RATE_LIMIT="2")
    # no time passes, so there are no new tokens
    monkeypatch.setattr(app.state.gate.limits.accounts, "_clock", lambda: 0.0)
    async with client_of(app) as client:
        statuses = [(await client.get("/v1/things")).status_code for _ in range(6)]
        assert statuses == [200] * 4 + [429] * 2
        refused = await client.post("/v1/things", content=b"x" * 300_000)
        assert (refused.status_code, refused.json()["type"]) == (429, RATE_LIMITED.type)
        assert refused.headers["retry-after"] == "1"
        unknown = await client.get("/v1/things", headers={"Authorization": "Bearer rk_test_unknown"})
        assert unknown.status_code == 401
    async with client_of(app, OTHER_KEY) as client:
        assert (await client.get("/v1/things")).status_code == 200


async def test_unknown_keys_use_no_memory():
    """[D-48]"""
    app = tiny_api(FATURA_RATE_LIMIT="2")
    async with client_of(app, None) as client:
        for number in range(50):
            answer = await client.get("/v1/things", headers={"Authorization": f"Bearer rk_test_{number}"})
            assert answer.status_code == 401
    assert len(app.state.gate.limits.accounts._full_at) == 0
