"""The routes of the pay page. They are for browsers, so the OpenAPI document does not describe them (D-258)."""

from collections.abc import Mapping

from fastapi import Request
from starlette.responses import Response

from fatura.api.http.authentication import Gate
from fatura.api.http.problems import answer_to
from fatura.api.http.route import OpenRoute
from fatura.api.pay_page.formats import Language, choose_language
from fatura.api.pay_page.methods import SENT
from fatura.api.pay_page.page import Document, error_page, pay_page
from fatura.domain.errors import EngineError
from fatura.usecases.pay_page import pages
from fatura.usecases.pay_page.pages import PayPage
from fatura.usecases.transaction import DATABASE_FAILURES

PATH = "/pay/{token}"
_FAILURES = (EngineError, *DATABASE_FAILURES)
_HEADERS: Mapping[str, str] = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-robots-tag": "noindex, nofollow",
}


async def show_pay_page(request: Request) -> Response:
    """Answer with the page of an invoice. Each link that opens nothing gets the same page."""
    language = _language(request)
    try:
        page = await _find(request)
    except _FAILURES as error:
        return _refused(error, request, language)
    token = request.path_params["token"]
    was_sent = page.is_test and SENT in request.query_params
    return _answer(await pay_page(page, language, token=token, was_sent=was_sent), language, status=200)


async def pay_in_sandbox(request: Request) -> Response:
    """Pay the charge of a sandbox account, and send the browser back to the page. A repeat pays nothing more."""
    language, gate = _language(request), _gate(request)
    try:
        await pages.pay_test(gate.deps, await _find(request))
    except _FAILURES as error:
        return _refused(error, request, language)
    location = f"../{request.path_params['token']}?lang={language}&{SENT}=1"
    return Response(status_code=303, headers={**_HEADERS, "location": location})


async def _find(request: Request) -> PayPage:
    """Return what the page shows. Only tokens that the engine has made cost a query, and count as views.

    Raises EngineError: `engine.not_found`, `engine.rate_limited`. Raises DATABASE_FAILURES.
    """
    gate = _gate(request)
    link = pages.read_token(gate.deps, request.path_params["token"])
    gate.limits.pay_pages.take((link.account_id, link.invoice_id))
    return await pages.find(gate.deps, link)


def _gate(request: Request) -> Gate:
    return request.app.state.gate


def _language(request: Request) -> Language:
    return choose_language(request.query_params.get("lang"), request.headers.get("accept-language", ""))


def _answer(document: Document, language: Language, *, status: int) -> Response:
    headers = {
        **_HEADERS,
        "content-language": language,
        "content-security-policy": document.policy,
    }
    return Response(document.html, status, headers, "text/html")


def _refused(error: Exception, request: Request, language: Language) -> Response:
    """Answer an error with a page for people. It has the status that the API would answer."""
    problem = answer_to(error, request.scope)
    assert problem is not None, "the API answers these errors"
    response = _answer(error_page(problem.status_code, language), language, status=problem.status_code)
    if "retry-after" in problem.headers:
        response.headers["retry-after"] = problem.headers["retry-after"]
    return response


ROUTES = (
    OpenRoute(PATH, show_pay_page),
    OpenRoute(f"{PATH}/sandbox-payment", pay_in_sandbox, method="POST"),
)
