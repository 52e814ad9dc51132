"""Answers: a view becomes bytes once, and those bytes are sent without being validated again."""

from starlette.responses import Response

from fatura.usecases.idempotency import StoredAnswer
from fatura.views.view import View

MEDIA_TYPE = "application/json"
REPLAYED = "Idempotent-Replayed"


def answer(view: View | bytes | None, *, status: int = 200) -> Response:
    """Answer with a view, with JSON that is encoded already, or without a body.

    Answers hold a merchant's data, so no cache may store them.
    """
    if view is None:
        return Response(status_code=status)
    body = view if isinstance(view, bytes) else view.json()
    return Response(body, status, {"cache-control": "no-store"}, MEDIA_TYPE)


def answer_once(stored: StoredAnswer) -> Response:
    """Answer a request with an Idempotency-Key; a header marks a replay (D-14)."""
    response = answer(stored.body, status=stored.status)
    if stored.replayed:
        response.headers[REPLAYED] = "true"
    return response
