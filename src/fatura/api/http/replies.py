"""How endpoints run use cases: one transaction, and repeats of a request replayed byte for byte (D-14)."""

from collections.abc import Awaitable, Callable

from starlette.responses import Response

from fatura.api.http.answers import answer, answer_once
from fatura.api.http.route import Call
from fatura.domain.shapes import Shape
from fatura.usecases.idempotency import IdempotentRequest, execute_once, find_answer
from fatura.usecases.transaction import Work, in_snapshot, in_transaction

Effect = Callable[[Work], Awaitable[Shape]]


async def run(call: Call, effect: Effect) -> Response:
    """Run a read, or a write that takes no Idempotency-Key, and answer what it returns.

    A read sees one moment, so that what it puts together from several statements was true at once.
    """
    run_effect = in_snapshot if call.only_reads else in_transaction
    return answer(await run_effect(call.deps, call.account, effect))


async def run_once(call: Call, effect: Effect, *, status: int = 200, holds_secret: bool = False) -> Response:
    """Run an effect once per Idempotency-Key and answer it, or replay its first answer."""
    stored = await execute_once(
        call.deps, call.account, request_of(call), effect, status=status, holds_secret=holds_secret
    )
    return answer_once(stored)


async def replay(call: Call) -> Response | None:
    """Answer a repeat before a third party is asked; None when the request is not one."""
    stored = await find_answer(call.deps, call.account, request_of(call))
    return None if stored is None else answer_once(stored)


def request_of(call: Call) -> IdempotentRequest:
    """Return what tells a repeat of a request from another one."""
    return IdempotentRequest(call.idempotency_key, call.target, call.body_value)
