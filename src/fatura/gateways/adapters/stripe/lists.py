"""Read lists of Stripe, which are ordered from the newest object to the oldest."""

from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from fatura.gateways.adapters.stripe.objects import Named, Page, read_as
from fatura.gateways.answers import InvalidFieldError
from fatura.gateways.http import ProviderCalls
from fatura.gateways.port import PermanentError, TransientError

T = TypeVar("T")
PAGE_SIZE = 100
"""Number of objects in a page, the maximum of Stripe."""
INVOICES_IN_PAGE = 25
"""Number of invoices in a page. A page of 100 invoices with many lines could be longer than the client allows."""


async def page(calls: ProviderCalls, path: str, *, query: Mapping[str, str], size: int = PAGE_SIZE) -> Page:
    """Read one page. Raises TransientError, AuthFailedError."""
    with reading():
        return await calls.read(path, Page, query={**query, "limit": str(size)})


async def raw_objects(
    calls: ProviderCalls, path: str, *, query: Mapping[str, str], size: int = PAGE_SIZE
) -> AsyncIterator[msgspec.Raw]:
    """Yield all objects of a list, newest first. Raises TransientError, AuthFailedError, InvalidFieldError."""
    found = await page(calls, path, query=query, size=size)
    while True:
        for each in found.data:
            yield each
        if not found.has_more:
            return
        if not found.data:
            raise InvalidFieldError("Stripe lists an empty page that is not the last one")
        last = read_as(found.data[-1], Named).id
        found = await page(calls, path, query={**query, "starting_after": last}, size=size)


async def objects(
    calls: ProviderCalls, path: str, *, kind: type[T], query: Mapping[str, str]
) -> AsyncIterator[T]:
    """Yield the decoded objects of `raw_objects`."""
    async for raw in raw_objects(calls, path, query=query):
        yield read_as(raw, kind)


@contextmanager
def reading() -> Generator[None]:
    """Turn a refusal into a transient failure: a call that only reads is repeated later (D-34)."""
    try:
        yield
    except PermanentError as error:
        raise TransientError(str(error), http_status=error.http_status) from None
