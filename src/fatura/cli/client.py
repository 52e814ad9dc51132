"""A small client of the HTTP API, for commands that use it as a merchant would."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import aiohttp

from fatura.failure_text import reason_of

START_WITHIN_SECONDS = 60
CALL_WITHIN_SECONDS = 130
MAX_ANSWER_BYTES = 64 * 1024 * 1024
NOT_AN_API = "the answer is not one of Fatura's API; is this the URL of a Fatura API?"


class ApiError(Exception):
    """A command cannot continue, for example because the API refused a call. The message is for the user."""


class ApiUnavailableError(ApiError):
    """The API cannot be reached, or has answered 429 or 5xx; the same call may succeed later."""


@asynccontextmanager
async def connect(base_url: str, api_key: str) -> AsyncGenerator["Client"]:
    headers = {"Authorization": f"Bearer {api_key}"}
    timeout = aiohttp.ClientTimeout(total=CALL_WITHIN_SECONDS)
    async with aiohttp.ClientSession(base_url, headers=headers, timeout=timeout) as session:
        yield Client(session, base_url, api_key=api_key)


class Client:
    """Calls the API of one account."""

    def __init__(self, session: aiohttp.ClientSession, base_url: str, *, api_key: str) -> None:
        self._session = session
        self.base_url = base_url
        self.api_key = api_key

    async def wait_until_ready(self) -> None:
        """Wait until the API is ready. Raises TimeoutError after START_WITHIN_SECONDS."""
        async with asyncio.timeout(START_WITHIN_SECONDS):
            while not await self._is_ready():  # noqa: ASYNC110 - another process serves the API
                await asyncio.sleep(0.1)

    async def _is_ready(self) -> bool:
        try:
            async with self._session.get("/health/ready", allow_redirects=False) as response:
                return response.ok
        except aiohttp.ClientConnectionError:
            return False

    async def get(self, path: str) -> Any:
        """Send a GET request, and return the JSON of the answer. Raises ApiUnavailableError, ApiError."""
        return _parsed(await self.read("GET", path))

    async def post(self, path: str, body: object) -> Any:
        """Send a POST request with a new Idempotency-Key, and return the JSON of the answer.

        Raises ApiUnavailableError, ApiError.
        """
        return _parsed(await self.read("POST", path, body=body, idempotency_key=str(uuid4())))

    async def put(self, path: str, body: object) -> Any:
        """Send a PUT request, and return the JSON of the answer. Raises ApiUnavailableError, ApiError."""
        return _parsed(await self.read("PUT", path, body=body))

    async def patch(self, path: str, body: object) -> Any:
        """Send a PATCH request, and return the JSON of the answer. Raises ApiUnavailableError, ApiError."""
        return _parsed(await self.read("PATCH", path, body=body))

    async def read(
        self, method: str, path: str, *, body: object = None, idempotency_key: str | None = None
    ) -> bytes:
        """Call the API and return the response body. Raises ApiUnavailableError, ApiError.

        A redirect is an error, because the request may contain credentials, which must not go to another host.
        """
        headers = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        try:
            async with self._session.request(
                method, path, json=body, headers=headers, allow_redirects=False
            ) as response:
                answer, status = await _body(response), response.status
                location = response.headers.get("Location", "no other URL")
        except (aiohttp.ClientError, TimeoutError) as error:
            message = (
                f"{self.base_url} cannot be reached: {why_unanswered(error)} "
                "(choose the API with --api or FATURA_API_URL)"
            )
            raise ApiUnavailableError(message) from error
        if status < HTTPStatus.MULTIPLE_CHOICES:
            return answer
        if status < HTTPStatus.BAD_REQUEST:
            raise ApiError(
                f"{self.base_url} redirects to {location}; if that is the right API, choose it with --api or "
                "FATURA_API_URL"
            )
        is_temporary = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS
        refused = f"{method} {path}: {_problem(answer, status)}"
        raise ApiUnavailableError(refused) if is_temporary else ApiError(refused)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Return the body of an answer. Raises ApiError if it is longer than any answer of the API."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ApiError(NOT_AN_API)
    return bytes(body)


def _parsed(answer: bytes) -> Any:
    """Return the JSON of an answer. Raises ApiError."""
    try:
        return json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise ApiError(NOT_AN_API) from error


def why_unanswered(error: aiohttp.ClientError | TimeoutError) -> str:
    """Return in plain words why a request got no answer."""
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host name is unknown; check how it is spelt"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return reason_of(error.certificate_error)
    if isinstance(error, aiohttp.ClientConnectorError):
        return reason_of(error.os_error)
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection without an answer"
    return reason_of(error)


def _problem(answer: bytes, status: int) -> str:
    """Return a problem's type, detail and invalid fields, or the HTTP status if the body is not a problem."""
    try:
        problem: Any = json.loads(answer)
        meta: Any = problem.get("meta")
        invalid: Any = () if meta is None else meta.get("fields", ())
        fields = "".join(f"\n  {each['path']} {each['message']}" for each in invalid)
        return f"{problem['type']}: {problem['detail']}{fields}"
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return f"status {status}"
