"""Check that a response to a bad request matches the OpenAPI document, is no 5xx and reveals no secret."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fatura.domain.errors import CATALOGUE
from tests.faults.probes.mutations import Wire
from tests.support.world import Json

_LEAKS = re.compile(
    rb"psycopg|asyncpg|pydantic|starlette|Traceback|\bSELECT\b|\bINSERT\b|\bUPDATE\b|File \\?\"|\.py\b|\bpg_|relation "
    rb"|violates|constraint|syntax error|line \d+, in |0x[0-9a-f]{8}|<class|Error\(|site-packages|/home/|/tmp/",
)
_CODES = re.compile(rb"engine\.[a-z_]+")
_PROBLEMS = {problem.type: problem for problem in CATALOGUE}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Judge:
    """Checks responses.

    `secret` has texts that no response may contain, and `names` has texts that no error response may contain.
    """

    document: Json
    secret: Collection[bytes]
    names: Collection[bytes]

    def faults(self, wire: Wire, answer: Answer) -> list[str]:
        if answer.status >= 500:
            return [f"{answer.status}: {answer.body[:300]!r}"]
        found = [f"shows {each!r}" for each in self.secret if each in answer.body]
        if answer.status < 400:
            return found
        shown = _LEAKS.search(answer.body)
        if shown and shown[0] not in wire.body + wire.path.encode() + wire.query.encode():
            found.append(f"shows {shown[0]!r}: {answer.body[:300]!r}")
        spoken = _CODES.sub(b"", answer.body)
        found += [f"shows the name {each!r}" for each in self.names if each in spoken]
        if answer.headers.get("content-type") != "application/problem+json":
            return [*found, f"{answer.status} is not problem+json: {answer.headers} {answer.body[:200]!r}"]
        return found + self._of_problem(wire, answer)

    def _of_problem(self, wire: Wire, answer: Answer) -> list[str]:
        body = json.loads(answer.body)
        problem = _PROBLEMS.get(body["type"])
        if problem is None or (body["status"], body["title"]) != (problem.status, problem.title):
            return [f"is not in the error catalogue: {body}"]
        if answer.status != problem.status:
            return [f"{answer.status} says {problem.status}"]
        if body["requestId"] != answer.headers.get("x-request-id"):
            return [f"requestId {body['requestId']} is not {answer.headers.get('x-request-id')}"]
        if not isinstance(body["detail"], str) or len(body["detail"]) > 1000:
            return [f"detail is too long: {body['detail'][:100]}"]
        return self._undocumented(wire, answer.status, body["type"])

    def _undocumented(self, wire: Wire, status: int, type_: str) -> list[str]:
        if wire.route is None:
            return []
        method, path = wire.route.split(" ")
        documented = self.document["paths"][path][method]["responses"].get(str(status))
        if documented is None:
            return [f"{status} is not documented for {wire.route}"]
        known = list(documented["content"]["application/problem+json"]["examples"])
        return [] if type_ in known else [f"{type_} is not documented for {wire.route} ({known})"]
