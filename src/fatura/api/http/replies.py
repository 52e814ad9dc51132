"""How endpoints run use cases: in one transaction, or once per Idempotency-Key (D-14)."""

from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec

from starlette.responses import Response

from fatura.api.http.answers import answer, answer_once
from fatura.api.http.route import Call
from fatura.usecases.idempotency import IdempotentRequest, execute_once, find_answer
from fatura.usecases.transaction import Work, in_snapshot, in_transaction
from fatura.views.view import View

P = ParamSpec("P")


async def run(
    call: Call,
    function: Callable[Concatenate[Work, P], Awaitable[View | bytes | None]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Run `function(work, ...)` in one transaction and answer what it returns.

    All statements of a GET see the data as of one moment.
    """
    run_in = in_snapshot if call.only_reads else in_transaction
    return answer(
        await run_in(call.deps, call.account, function, *args, **kwargs), status=call.success_status
    )


async def run_once(
    call: Call,
    function: Callable[Concatenate[Work, P], Awaitable[View]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Run `function(work, ...)` once per Idempotency-Key and answer what it returns, or replay its first answer."""
    stored = await execute_once(
        call.deps,
        call.account,
        request_of(call),
        lambda work: function(work, *args, **kwargs),
        status=call.success_status,
        holds_secret=call.holds_secret,
    )
    return answer_once(stored)


async def replay(call: Call) -> Response | None:
    """Answer a repeated request before a third party is called; None when the request is new."""
    stored = await find_answer(call.deps, call.account, request_of(call))
    return None if stored is None else answer_once(stored)


def request_of(call: Call) -> IdempotentRequest:
    return IdempotentRequest(call.idempotency_key, call.target, call.body_value)
