"""Use at least fifty known secrets (canaries) in requests and during faults, then search all output for them."""

import base64
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fatura.store.vault import new_key
from tests.faults import place
from tests.faults.report import Options, Report
from tests.faults.secrets import canary_places, canary_steps, revocation
from tests.faults.stack import Client, open_stack
from tests.support.receiver import open_receiver
from tests.support.world import rows

SHOWN = {
    kind: frozenset(where.split()) - {"-"}
    for kind, where, _ in rows("""
        kind               | shown by                 | since
        api key            | answers                  | D-41: once, by the answer that makes it
        integration secret | answers                  | D-42: once, by the answer that makes it
        wrong api key      | -                        | spec 5.3
        document           | -                        | D-15: never returned
        gateway credential | -                        | D-43: never returned
        gateway secret     | -                        | D-43, D-114: as a credential
        refused body       | -                        | spec 7: not stored or shown
        idempotency key    | -                        | D-228: stored hashed
        price token        | answers dump             | spec 2.2: endpointUrl is a field of the product
        webhook token      | answers dump             | D-39: the registered url is read back
        e-mail             | answers dump events hook | spec 2.4: a field of the customer
        ring key           | -                        | D-47
        database password  | -                        | D-47
    """)
}
"""For each kind of secret, the places where it may appear. No secret may appear in logs, errors or metrics."""


@dataclass(slots=True)
class Canaries:
    """The known secrets, each with its kind."""

    chance: random.Random
    kinds: dict[str, str] = field(default_factory=dict[str, str])

    def make(self, kind: str) -> str:
        """Return a new secret. A length of 18 characters is valid for every kind."""
        return self.add(kind, "cnry" + "".join(self.chance.choices("abcdefghijkmnpqrstuvwxyz23456789", k=14)))

    def add(self, kind: str, text: str) -> str:
        assert kind in SHOWN, kind
        self.kinds[text] = kind
        return text


async def search(server_url: str, folder: Path, *, options: Options, report: Report) -> None:
    """Send the secrets to real processes that log at level debug, and revoke an API key in use (see `revocation`).

    Then search all output for each secret, in several encodings.
    """
    canaries = Canaries(random.Random(options.seed))  # noqa: S311 - repeatable by seed
    ring = ",".join(canaries.add("ring key", new_key()) for _ in range(2))
    options.progress(2, 4, "canaries")
    async with place.database(server_url) as url, open_receiver() as receiver:
        with_password = url.replace("fatura@", f"fatura:{canaries.make('database password')}@")
        assert with_password != url
        logged = folder / "canaries"
        logged.mkdir()
        with open_stack(with_password, logged, ring=ring, FATURA_LOG_LEVEL="debug") as stack:
            opened = await stack.open_account()
            canaries.add("api key", opened.api_key)
            canaries.add("integration secret", opened.secret)
            client = Client(stack, opened.api_key)
            try:
                await canary_steps.push(client, canaries, receiver, server_url=server_url, url=url)
                await revocation.revoke(
                    client, canaries, report=report, requests=options.pick(short=30, full=250)
                )
                found = Counter[tuple[str, str]]()
                searched = 0
                async for where, text in canary_places.everything(stack, client, receiver, url=url):
                    searched += 1
                    found.update((canaries.kinds[each], where) for each in _contains(canaries, text))
            finally:
                await client.close()
    _judge(canaries, found, searched=searched, report=report)


def _judge(canaries: Canaries, found: Counter[tuple[str, str]], *, searched: int, report: Report) -> None:
    report.count("canaries", len(canaries.kinds), at_least=50)
    report.count("log lines, rows, answers and pushes searched", searched, at_least=500)
    hits = {(kind, where): number for (kind, where), number in found.items() if where not in SHOWN[kind]}
    report.count("canaries in forbidden places", sum(hits.values()), at_most=0)
    report.problems += [
        f"a {kind} is in the {where} {number} times" for (kind, where), number in hits.items()
    ]
    needed = {
        ("e-mail", "events"),
        ("webhook token", "dump"),
        ("api key", "answers"),
    }
    report.problems += [
        f"the search does not work: no {kind} in the {where}" for kind, where in needed - {*found}
    ]


def _contains(canaries: Canaries, text: str) -> set[str]:
    return {each for each in canaries.kinds if any(form in text for form in _forms(each))}


def _forms(canary: str) -> Iterator[str]:
    """Yield a canary as plain text, in JSON, in hexadecimal, and in base64 at each of the three possible offsets."""
    raw = canary.encode()
    yield canary
    yield json.dumps(canary)[1:-1]
    yield raw.hex()
    for before in range(3):
        encoded = base64.b64encode(b"-" * before + raw).decode()
        yield re.sub(r"^.{4}|.{4}$", "", encoded)
