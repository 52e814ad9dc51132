"""Rotation of the integration secret: three libraries verify deliveries with the old and the new secret."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Self

import pytest
import standardwebhooks
import stripe

from fatura.signature import SignatureError, sign, verify
from fatura.views.view import instant
from tests.support.push_steps import emit, register, skip
from tests.support.receiver import Received, Receiver
from tests.support.sandbox_steps import now
from tests.support.world import Merchant, World

ROTATE = "/v1/integration/secret/rotate"


async def rotate(merchant: Merchant, **body: bool) -> str:
    answer = await merchant.post(ROTATE, body)
    assert answer.status == 200, answer.body
    return answer.json["secret"]


def by_ours(each: Received, body: bytes, secret: str) -> None:
    verify(body, each.headers["X-Service-Signature"], secret=secret)


def by_stripe(each: Received, body: bytes, secret: str) -> None:
    header = each.headers["X-Service-Signature"]
    stripe.WebhookSignature.verify_header(body.decode(), header, secret, 300)


def by_standard_webhooks(each: Received, body: bytes, secret: str) -> None:
    headers = {name: each.headers[name] for name in ("webhook-id", "webhook-timestamp", "webhook-signature")}
    standardwebhooks.Webhook(secret).verify(body, headers)


VERIFIERS = (by_ours, by_stripe, by_standard_webhooks)
REFUSALS = (SignatureError, stripe.SignatureVerificationError, standardwebhooks.WebhookVerificationError)
Verifier = Callable[[Received, bytes, str], None]


def accepts(verifier: Verifier, each: Received, secret: str) -> bool:
    try:
        verifier(each, each.body, secret)
    except REFUSALS:
        return False
    return True


async def pushed(world: World, receiver: Receiver) -> Received:
    """Emit an event, deliver it, and return the request that the receiver got."""
    await emit(world, 1)
    await world.run("push")
    return receiver.received[-1]


async def test_a_rotation_answers_the_new_secret(world: World) -> None:
    """[D-42, D-14]"""
    before = await now(world)
    first = await world.post(ROTATE, key="rotate")
    again = await world.post(ROTATE, key="rotate")

    assert first.status == 200
    assert first.json.keys() == {"secret", "previousValidUntil"}
    assert first.json["secret"].startswith("whsec_")
    until = first.json["previousValidUntil"]
    assert until.startswith((before + timedelta(hours=24)).isoformat()[:15])
    assert (again.body, again.headers["Idempotent-Replayed"]) == (first.body, "true")
    assert await rotate(world) != first.json["secret"]


@pytest.mark.parametrize("verifier", VERIFIERS)
async def test_old_and_new_secret_verify_for_a_day(
    world: World, receiver: Receiver, verifier: Verifier
) -> None:
    """For 24 hours after a rotation, both secrets verify deliveries. Afterwards, only the new secret does.
    [D-40, spec 5.7, spec 8 previous secret, spec 6.3, spec 5.5]
    """
    await register(world, receiver)
    old = await rotate(world)
    await skip(world, timedelta(hours=25))
    before = await pushed(world, receiver)
    new = await rotate(world)

    during = await pushed(world, receiver)
    await skip(world, timedelta(hours=23, minutes=59))
    still = await pushed(world, receiver)
    await skip(world, timedelta(minutes=2))
    after = await pushed(world, receiver)

    assert [accepts(verifier, each, old) for each in (before, during, still, after)] == [True] * 3 + [False]
    assert [accepts(verifier, each, new) for each in (before, during, still, after)] == [False] + [True] * 3
    assert [each.headers["X-Service-Signature"].count("v1=") for each in (before, during, still, after)] == [
        1,
        2,
        2,
        1,
    ]


@pytest.mark.parametrize("verifier", VERIFIERS)
async def test_a_changed_byte_or_an_old_message_is_refused(
    world: World, receiver: Receiver, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[spec 5.6, D-42]"""
    await register(world, receiver)
    secret = await rotate(world)
    arrived = await pushed(world, receiver)
    verifier(arrived, arrived.body, secret)

    for place in (0, len(arrived.body) // 2, len(arrived.body) - 1):
        changed = bytearray(arrived.body)
        changed[place] ^= 1
        with pytest.raises(REFUSALS):
            verifier(arrived, bytes(changed), secret)
    other = await rotate(world)
    assert not accepts(verifier, arrived, other)
    real = time.time()
    for off_seconds, accepted in ((-290, True), (290, True), (310, False)):
        with monkeypatch.context() as patched:
            patch_clock(patched, real + off_seconds)
            assert accepts(verifier, arrived, secret) is accepted, off_seconds


def patch_clock(patched: pytest.MonkeyPatch, seconds: float) -> None:
    """Set the clocks that the verifiers read."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(seconds, tz)

    patched.setattr(time, "time", lambda: seconds)
    patched.setattr(standardwebhooks.webhooks, "datetime", Clock)


async def test_the_timestamp_is_real_time_on_an_advanced_test_clock(world: World, receiver: Receiver) -> None:
    """[D-39 timestamp, D-1]"""
    await register(world, receiver)
    await skip(world, timedelta(days=1000))
    arrived = await pushed(world, receiver)

    assert abs(int(arrived.headers["webhook-timestamp"]) - time.time()) < 10


async def test_concurrent_rotations_leave_one_current_secret(world: World, receiver: Receiver) -> None:
    """Fatura signs with a replaced secret for 24 more hours, so all five secrets verify the delivery. [D-42, D-40]"""
    await register(world, receiver)
    secrets = await asyncio.gather(*(rotate(world) for _ in range(5)))
    arrived = await pushed(world, receiver)

    assert len(set(secrets)) == 5
    for secret in secrets:
        by_ours(arrived, arrived.body, secret)
    rows = await world.sql(
        "SELECT count(*) AS all, count(valid_until) AS ended FROM integration_secret WHERE account_id = $1",
        world.account_id,
    )
    assert tuple(rows[0]) == (6, 5)


async def test_rotating_under_traffic_breaks_no_receiver(world: World, receiver: Receiver) -> None:
    """[D-40, spec 5.7]"""
    await register(world, receiver)
    secrets = [await rotate(world)]
    await emit(world, 400, invoices=40)
    pushing = asyncio.create_task(world.run("push"))
    while not pushing.done() and len(secrets) < 7:
        await asyncio.sleep(0.05)
        secrets.append(await rotate(world))
    await pushing

    assert len(receiver.received) == 400
    for each in receiver.received:
        by_ours(each, each.body, secrets[0])
    signed_by = [first_signer(each, secrets) for each in receiver.received]
    assert signed_by == sorted(signed_by)
    assert signed_by[0] < signed_by[-1]


def first_signer(each: Received, secrets: list[str]) -> int:
    """Return the index of the secret that made the first signature."""
    first = ",".join(each.headers["X-Service-Signature"].split(",")[:2])
    timestamp = int(each.headers["webhook-timestamp"])
    return [sign(each.body, [secret], timestamp=timestamp) for secret in secrets].index(first)


async def test_a_header_never_carries_more_than_eight_signatures(world: World, receiver: Receiver) -> None:
    """[D-40, D-119]"""
    await register(world, receiver)
    secrets = [await rotate(world) for _ in range(12)]
    arrived = await pushed(world, receiver)

    assert arrived.headers["X-Service-Signature"].count("v1=") == 8
    assert [accepts(by_ours, arrived, secret) for secret in secrets] == [False] * 4 + [True] * 8


async def test_a_leaked_secret_is_invalid_at_once(world: World, receiver: Receiver) -> None:
    """The leaked secret replaced an older secret, which is still valid. The rotation ends both secrets. [D-207]"""
    await register(world, receiver)
    oldest, leaked = await rotate(world), await rotate(world)
    before = await now(world)
    answer = await world.post(ROTATE, {"revokePrevious": True}, key="leaked")
    again = await world.post(ROTATE, {"revokePrevious": True}, key="leaked")

    arrived = await pushed(world, receiver)

    assert instant(before) <= answer.json["previousValidUntil"] <= instant(await now(world))
    assert again.body == answer.body
    assert [accepts(by_ours, arrived, each) for each in (oldest, leaked, answer.json["secret"])] == [
        False,
        False,
        True,
    ]
    assert arrived.headers["X-Service-Signature"].count("v1=") == 1
    following = await rotate(world)
    arrived = await pushed(world, receiver)
    assert [accepts(by_ours, arrived, each) for each in (answer.json["secret"], following)] == [True, True]


@pytest.mark.parametrize("body", [{"revokePrevious": "true"}, {"revokePrevious": None}, {"revoke": True}, []])
async def test_an_invalid_rotation_changes_nothing(world: World, body: object) -> None:
    """[D-207, D-11]"""
    before = await world.sql("SELECT * FROM integration_secret")
    assert (await world.post(ROTATE, body)).status == 400
    assert await world.sql("SELECT * FROM integration_secret") == before
