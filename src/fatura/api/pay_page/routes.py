"""The routes of the pay page. They are for browsers, so the OpenAPI document does not describe them (D-258)."""

from collections.abc import Mapping
from functools import partial
from urllib.parse import quote

from fastapi import Request
from starlette.datastructures import QueryParams
from starlette.responses import Response
from starlette.types import Scope

from fatura.api.http.authentication import Gate
from fatura.api.http.route import OpenRoute
from fatura.api.pay_page.formats import Language, choose_language
from fatura.api.pay_page.methods import SENT
from fatura.api.pay_page.page import NOTHING_ALLOWED, Document, error_page, pay_page
from fatura.usecases.pay_page import pages
from fatura.usecases.pay_page.pages import PayPage

_START = "/pay/"
PATH = f"{_START}{{token}}"
MAX_QUERY_BYTES = 200
"""A longer query is ignored, because the page needs only `lang` and SENT, and reading a long query takes long."""
_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex, nofollow",
}
_KEPT_HEADERS = ("allow", "retry-after")
"""Headers of the API's answer to an error that the page of the error has too."""


async def show_pay_page(request: Request) -> Response:
    """Answer with the page of an invoice.

    Raises EngineError: `engine.not_found`, `engine.rate_limited`. Raises DATABASE_FAILURES.
    """
    page = await _find(request)
    language, query = _language(request), _query(request)
    token = request.path_params["token"]
    was_sent = page.is_test and SENT in query
    return _answer(await pay_page(page, language, token=token, was_sent=was_sent), language, status=200)


async def pay_in_sandbox(request: Request) -> Response:
    """Pay the charge of a sandbox account, and send the browser back to the page. A repeat pays nothing more.

    Raises EngineError: `engine.not_found`, `engine.rate_limited`. Raises DATABASE_FAILURES.
    """
    was_paid = await pages.pay_test(_gate(request).deps, await _find(request))
    location = (
        f"../{request.path_params['token']}?lang={_language(request)}{f'&{SENT}=1' if was_paid else ''}"
    )
    headers = {**_HEADERS, "content-security-policy": NOTHING_ALLOWED, "location": location}
    return Response(status_code=303, headers=headers)


async def _find(request: Request) -> PayPage:
    """Return the data of the page. A token that the engine did not make costs no query, and does not count as a view.

    Raises EngineError: `engine.not_found`, `engine.rate_limited`. Raises DATABASE_FAILURES.
    """
    gate = _gate(request)
    link = pages.read_token(gate.deps, request.path_params["token"])
    page = await gate.limits.pay_pages.count(link, partial(pages.find, gate.deps, link))
    if page is None:
        raise pages.no_page()
    return page


def refusal(answer: Response, scope: Scope) -> Response:
    """Return the answer to an error. Under `/pay/`, a page for people replaces `answer`, the answer of the API.

    All links that open nothing get the same page.
    """
    if not scope["path"].startswith(_START):
        return answer
    request = Request(scope)
    language = _language(request)
    here = ""
    if scope["method"] == "POST" and "token" in request.path_params:
        # The button's address accepts only POST, so the link to the other language leads to the pay page.
        here = f"../{quote(request.path_params['token'], safe='')}"
    page = _answer(error_page(answer.status_code, language, here=here), language, status=answer.status_code)
    page.headers.update({name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers})
    return page


def _gate(request: Request) -> Gate:
    return request.app.state.gate


def _query(request: Request) -> QueryParams:
    query: bytes = request.scope["query_string"]
    return QueryParams(query if len(query) <= MAX_QUERY_BYTES else b"")


def _language(request: Request) -> Language:
    return choose_language(_query(request).get("lang"), request.headers.get("accept-language", ""))


def _answer(document: Document, language: Language, *, status: int) -> Response:
    headers = {
        **_HEADERS,
        "content-language": language,
        "content-security-policy": document.policy,
    }
    return Response(document.html, status, headers, "text/html")


ROUTES = (
    OpenRoute(PATH, show_pay_page),
    OpenRoute(f"{PATH}/sandbox-payment", pay_in_sandbox, method="POST"),
)
