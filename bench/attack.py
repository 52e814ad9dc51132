"""Attack an API process from several addresses of this machine, in a process of its own.

    python -m bench.attack PORT METRICS_PORT KEY [ATTACK...]

It opens idle connections, sends giant bodies and more requests than KEY's account may send, tries wrong API keys, and
asks for metrics and readiness. If names of ATTACKS are given, it makes only those. It prints `begun` when all attacks
have started, continues until stdin closes, and then prints the number of answers by attack and status as JSON.
"""

import asyncio
import json
import socket
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import uvloop

from bench.load import Connection

IDLE_CONNECTIONS = 2_000
IDLE_ADDRESSES = 8
SCRAPES, READINESS_CALLS, GIANT_BODIES, WRONG_KEYS, GREEDY = 60, 200, 4, 50, 250
"""Requests per second. GREEDY is a quarter more than the default FATURA_RATE_LIMIT allows one account."""
CONNECTIONS = 4
"""Connections of each attack that sends requests."""
GIANT_FIELDS = 18_000
IDLE = "idle connections"
ATTACKS = (IDLE, "metrics", "readiness", "giant bodies", "wrong keys", "greedy account")


@dataclass(slots=True)
class Attacker:
    """Sends requests, each attack from a loopback address of its own, and counts the answers."""

    port: int
    metrics_port: int
    key: str
    answers: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    idling: list[Connection] = field(default_factory=list[Connection])

    async def connect(self, address: str, port: int) -> Connection:
        loop = asyncio.get_running_loop()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        client.settimeout(0)
        client.bind((address, 0))
        await loop.sock_connect(client, ("127.0.0.1", port))
        _, connection = await loop.create_connection(Connection, sock=client)
        return connection

    async def ask(self, attack: str, connection: Connection, request: bytes) -> bool:
        """Send a request and count its answer. Return whether the connection is still open."""
        counted = self.answers.setdefault(attack, Counter())
        try:
            counted[await connection.ask(request)] += 1
        except OSError:
            counted["closed"] += 1
            return False
        return True

    async def idle(self) -> None:
        """Open connections without a request, from several networks."""
        for number in range(IDLE_CONNECTIONS):
            self.idling.append(await self.connect(f"127.0.{1 + number % IDLE_ADDRESSES}.1", self.port))

    async def pace(
        self, attack: str, request: Callable[[int], bytes], *, per_second: int, port: int | None = None
    ) -> None:
        """Send requests at a constant rate over a few connections, all from one address."""
        self.answers[attack] = Counter()
        address = f"127.0.{10 + len(self.answers)}.1"

        async def line(place: int) -> None:
            connection = await self.connect(address, port or self.port)
            for number in count(place, CONNECTIONS):
                pause = asyncio.create_task(asyncio.sleep(CONNECTIONS / per_second))
                if not await self.ask(attack, connection, request(number)):
                    connection = await self.connect(address, port or self.port)
                await pause

        await asyncio.gather(*(line(place) for place in range(CONNECTIONS)))

    def attacks(self, names: Sequence[str]) -> Sequence[Awaitable[None]]:
        """Return the named attacks that send requests. `idle` opens the idle connections."""
        giant = json.dumps({f"f{number}": 1 for number in range(GIANT_FIELDS)}).encode()
        paces = {
            "metrics": partial(
                self.pace, request=lambda _: _get("/metrics"), per_second=SCRAPES, port=self.metrics_port
            ),
            "readiness": partial(
                self.pace, request=lambda _: _get("/health/ready"), per_second=READINESS_CALLS
            ),
            "giant bodies": partial(
                self.pace, request=lambda _: _post("/v1/products", self.key, giant), per_second=GIANT_BODIES
            ),
            "wrong keys": partial(
                self.pace,
                request=lambda number: _get("/v1/products", f"{self.key[:-8]}{number:08}"),
                per_second=WRONG_KEYS,
            ),
            "greedy account": partial(
                self.pace, request=lambda _: _get("/v1/invoices", self.key), per_second=GREEDY
            ),
        }
        return [paces[name](name) for name in names if name != IDLE]


def _get(target: str, key: str = "") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: fatura\r\nAuthorization: Bearer {key}\r\n\r\n".encode()


def _post(target: str, key: str, body: bytes) -> bytes:
    head = (
        f"POST {target} HTTP/1.1\r\nHost: fatura\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: giant\r\n"
    )
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def _attack(attacker: Attacker, names: Sequence[str]) -> None:
    if IDLE in names:
        await attacker.idle()
    running = [asyncio.ensure_future(each) for each in attacker.attacks(names)]
    await asyncio.sleep(1)
    print("begun", flush=True)
    stopping = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    done, _ = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    for each in done - {stopping}:
        each.result()
    print(json.dumps(attacker.answers))


def main() -> None:
    port, metrics_port, key, *names = sys.argv[1:]
    uvloop.run(_attack(Attacker(int(port), int(metrics_port), key), names or ATTACKS))


if __name__ == "__main__":
    main()
