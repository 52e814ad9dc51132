"""Responses of the API, and how endpoints run use cases: in one transaction, or once per Idempotency-Key (D-14)."""

from collections.abc import Awaitable, Callable
from typing import Concatenate, ParamSpec

from starlette.responses import Response

from fatura.api.http.route import Call
from fatura.usecases import transaction
from fatura.usecases.idempotency import StoredAnswer, execute_once, find_answer
from fatura.usecases.transaction import Work
from fatura.views.view import View

P = ParamSpec("P")

MEDIA_TYPE = "application/json"
REPLAYED = "Idempotent-Replayed"


def answer(view: View | bytes | None, *, status: int = 200) -> Response:
    """Answer with a view, with JSON that is encoded already, or without a body.

    Answers contain a merchant's data, so no cache may store them.
    """
    if view is None:
        return Response(status_code=status)
    body = view if isinstance(view, bytes) else view.json()
    return Response(body, status, {"cache-control": "no-store"}, MEDIA_TYPE)


def answer_once(body: View | bytes, *, status: int, is_replayed: bool) -> Response:
    """Return an answer. If it repeats the first answer to an Idempotency-Key, a header says so (D-14)."""
    response = answer(body, status=status)
    if is_replayed:
        response.headers[REPLAYED] = "true"
    return response


def answer_stored(stored: StoredAnswer) -> Response:
    return answer_once(stored.body, status=stored.status, is_replayed=stored.replayed)


async def run(
    call: Call,
    function: Callable[Concatenate[Work, P], Awaitable[View | None]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Run `function(work, ...)` in one transaction, and answer with the view that it returns.

    All statements of a GET read one snapshot of the database, so that they see the same data.
    """
    view = await transaction.run(
        call.deps,
        call.account,
        lambda work: function(work, *args, **kwargs),
        snapshot=call.only_reads,
        draft=call.draft,
    )
    return answer(view, status=call.success_status)


async def run_dry(
    call: Call,
    function: Callable[Concatenate[Work, P], Awaitable[View]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Run `function(work, ...)` like `run`, but write no audit entry. The function must change nothing."""
    view = await transaction.run(call.deps, call.account, lambda work: function(work, *args, **kwargs))
    call.settle()
    return answer(view, status=call.success_status)


async def run_once(
    call: Call,
    function: Callable[Concatenate[Work, P], Awaitable[View]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Response:
    """Run `function(work, ...)` in one transaction, and answer with the view that it returns.

    A request that repeats an Idempotency-Key gets the first answer again, and `function` does not run.
    """
    stored = await execute_once(
        call.deps,
        call.account,
        call.request,
        lambda work: function(work, *args, **kwargs),
        status=call.success_status,
        draft=call.draft,
        holds_secret=call.holds_secret,
    )
    return answer_stored(stored)


async def replay(call: Call) -> Response | None:
    """Return the first answer to a repeated request, or None if the request is new or has no Idempotency-Key.

    An endpoint calls this before it calls a third party, so that a repeated request makes no second call.
    """
    stored = await find_answer(call.deps, call.account, call.request)
    if stored is None:
        return None
    call.settle()
    return answer_stored(stored)
