"""Collect the HTTP exchanges that an adapter makes during one call of the port (D-267).

`gateways.http` adds each exchange. So the adapters need no code for this.
"""

import json
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from urllib.parse import urlencode

from fatura.domain.tax_document import without_documents
from fatura.gateways.port import GatewayError

SECRET_CHARS = 8
"""A value of this length or longer is treated as a secret, if it comes from credentials."""
MAX_TEXT_BYTES = 64 * 1024
"""Maximum length of each body that is kept."""


@dataclass(frozen=True, slots=True, repr=False)
class Exchange:
    """A request to a provider, and its answer or, in `failure`, why there is none.

    `began` is on the monotonic clock. `credentials` are values that must not be shown. Long bodies are cut.
    """

    began: float
    seconds: float
    method: str
    path: str
    request: bytes
    status: int | None
    answer: bytes
    failure: str | None
    credentials: Collection[str]

    def shown(self, sent: str | bytes, *, hidden: Collection[str] = ()) -> str:
        """Return a part of the exchange as valid text of at most MAX_TEXT_BYTES.

        The text contains no credentials, no CPF or CNPJ (spec 2.4), and none of the `hidden` values.
        """
        text = sent if isinstance(sent, str) else sent.decode(errors="replace")
        text = without_documents(without_secrets(text, {*self.credentials, *hidden}))
        return _cut(text).decode(errors="ignore")


def _cut(text: str) -> bytes:
    return text.encode(errors="replace")[:MAX_TEXT_BYTES]


def _kept(body: bytes, credentials: Collection[str]) -> bytes:
    """Return what is kept of a body until it is stored. A long one is cut, but no credential in it is cut apart."""
    if len(body) <= MAX_TEXT_BYTES:
        return body
    return _cut(without_documents(without_secrets(body.decode(errors="replace"), credentials)))


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Replace each secret in the text by `***`, also where it is escaped as in JSON."""
    values = {each for each in secrets if len(each) >= SECRET_CHARS}
    values |= {json.dumps(each)[1:-1] for each in values} | {each.replace("/", "\\/") for each in values}
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, "***")
    return text


_collected: ContextVar[list[Exchange] | None] = ContextVar("collected", default=None)


@contextmanager
def collected() -> Generator[list[Exchange]]:
    """Yield a list to which the exchanges of the block, and of the tasks that it starts, are added."""
    found: list[Exchange] = []
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


@dataclass(slots=True)
class Answered:
    """The answer to a request. The status is 0 until the answer has arrived."""

    status: int = 0
    body: bytes = b""


@contextmanager
def noted(
    method: str,
    path: str,
    *,
    query: Mapping[str, str] | None,
    request: bytes | None,
    credentials: Collection[str],
) -> Generator[Answered]:
    """Yield a place for the answer to a request. When the block ends, add the exchange to the collected ones."""
    began, answered, failure = time.monotonic(), Answered(), None
    try:
        yield answered
    except BaseException as error:
        failure = str(error) if isinstance(error, GatewayError) else "no answer in time"
        raise
    finally:
        if (found := _collected.get()) is not None:
            exchange = Exchange(
                began=began,
                seconds=time.monotonic() - began,
                method=method,
                path=f"{path}?{urlencode(query)}" if query else path,
                request=_kept(request or b"", credentials),
                status=answered.status or None,
                answer=_kept(answered.body, credentials),
                failure=failure,
                credentials=credentials,
            )
            found.append(exchange)
