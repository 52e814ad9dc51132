"""Answers: a shape becomes bytes once, and those bytes are sent; nothing validates them a second time."""

import msgspec
from starlette.responses import Response

from fatura.domain.shapes import Shape
from fatura.usecases.idempotency import StoredAnswer

MEDIA_TYPE = "application/json"
REPLAYED = "Idempotent-Replayed"


def answer(shape: Shape, *, status: int = 200) -> Response:
    """Answer with a shape."""
    return raw_answer(msgspec.json.encode(shape), status=status)


def raw_answer(body: bytes, *, status: int = 200) -> Response:
    """Answer with JSON that is encoded already. It holds a merchant's data: nobody on the way may keep it."""
    return Response(body, status, {"cache-control": "no-store"}, MEDIA_TYPE)


def answer_once(stored: StoredAnswer) -> Response:
    """Answer what an Idempotency-Key stands for, saying so when it is a repeat (D-14)."""
    response = raw_answer(stored.body, status=stored.status)
    if stored.replayed:
        response.headers[REPLAYED] = "true"
    return response


def nothing() -> Response:
    """Answer 204."""
    return Response(status_code=204)
