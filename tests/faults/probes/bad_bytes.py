"""Send invalid HTTP over sockets to a real `fatura api`."""

import asyncio
import json
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import place
from tests.faults.digest import differences, digest
from tests.faults.report import Options
from tests.support.fatura_processes import environment, free_port, run, running, serves
from tests.support.populated import connected
from tests.support.postgres_processes import until
from tests.support.unlimited import UNLIMITED

WAIT_SECONDS = 5
"""Time limit for a response. The server's own time-out is longer, and other tests cover it."""


@dataclass(slots=True)
class Sent:
    asked: int = 0
    problems: list[str] = field(default_factory=list[str])


def send_all(server_url: str, options: Options) -> Sent:
    """Send many requests with invalid bytes. No request may cause a 5xx or a write, and the API must keep running."""
    return asyncio.run(_with_api(server_url, options))


async def _with_api(server_url: str, options: Options) -> Sent:
    sent = Sent()
    async with place.database(server_url) as url:
        with tempfile.TemporaryDirectory(prefix="fatura-faults-") as folder:
            env = environment(url, **UNLIMITED)
            opened = json.loads(run("account", "create", "A", "--mode", "sandbox", "--json", env=env).stdout)
            port, output = free_port(), Path(folder) / "api.log"
            with running("api", "--port", str(port), env=env, output=output) as api:
                until(lambda: serves(port), seconds=30)
                async with connected(url, opened["accountId"]) as connection:
                    await connection.execute("UPDATE api_key SET last_used_at = '2100-01-01'")
                    before = await digest(connection, opened["accountId"])
                    chance = random.Random(options.seed)  # noqa: S311 - repeatable by seed
                    for _ in range(options.pick(short=150, full=2_000)):
                        name, raw = _bytes(chance, opened["apiKey"])
                        sent.problems += [f"{name}: {each}" for each in await _judged(port, raw)]
                        sent.asked += 1
                    changed = differences(before, await digest(connection, opened["accountId"]))
                sent.problems += [f"bytes changed {table}" for table in changed]
                if not serves(port):
                    sent.problems.append("the API is down")
                sent.problems += [
                    f"logged: {line[:4000]}"
                    for line in api.said().splitlines()
                    if "Traceback" in line or opened["apiKey"] in line
                ]
    return sent


async def _judged(port: int, raw: bytes) -> list[str]:
    """Send bytes, then close the sending side of the connection. Return the problems of the responses.

    The API may also close the connection without a response.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            writer.write(raw)
            writer.write_eof()
            answer = await reader.read()
    except (ConnectionError, BrokenPipeError):
        return []
    except TimeoutError:
        return [f"no end of the answer to {raw[:200]!r}"]
    finally:
        writer.close()
    return _faults(answer)


def _faults(answer: bytes) -> list[str]:
    found: list[str] = []
    for each in answer.split(b"HTTP/1.1 ")[1:]:
        head, _, body = each.partition(b"\r\n\r\n")
        status = int(each[:3])
        if status >= 500:
            found.append(f"{status} {body!r}")
        elif status >= 400 and b"application/problem+json" not in head:
            found.append(f"{status} is no problem: {each[:300]!r}")
        elif 200 <= status < 300 and b'"status":"ok"' not in body:
            found.append(f"{status} for bytes that should be refused: {each[:300]!r}")
    if answer and not answer.startswith(b"HTTP/1.1 "):
        found.append(f"is no HTTP: {answer[:200]!r}")
    return found


def _bytes(chance: random.Random, key: str) -> tuple[str, bytes]:
    """Choose a random invalid request. Return the name of its kind, and its bytes."""
    body = b'{"name": "x"}'
    auth = b"Authorization: Bearer " + key.encode() + b"\r\n"
    host = b"Host: x\r\n"
    post = b"POST /v1/products HTTP/1.1\r\n" + host + auth + b"Content-Type: application/json\r\n"
    get = b"GET /v1/products HTTP/1.1\r\n" + host
    size = chance.randrange(1, 70_000)
    noise = chance.randbytes(chance.randrange(1, 400))
    kinds = {
        "no key": post + b"Content-Length: 13\r\n\r\n" + body,
        "two lengths": post + b"Content-Length: 13\r\nContent-Length: 14\r\n\r\n" + body,
        "length too long": post + b"Content-Length: 99\r\n\r\n" + body,
        "length too short": post + b"Content-Length: 3\r\n\r\n" + body,
        "length negative": post + b"Content-Length: -1\r\n\r\n" + body,
        "length no number": post + b"Content-Length: 1x\r\n\r\n" + body,
        "length huge": post + b"Content-Length: 99999999999999999999999\r\n\r\n" + body,
        "length beyond what is taken": post + b"Content-Length: 300000\r\n\r\n" + body,
        "length and chunks": post + b"Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "bad chunk": post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
        "chunk too short": post + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab\r\n0\r\n\r\n",
        "endless chunks": post + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n",
        "unknown coding": post + b"Transfer-Encoding: gzip\r\n\r\n" + noise,
        "noise": noise,
        "noise in the path": b"GET /" + noise.replace(b" ", b"") + b" HTTP/1.1\r\n\r\n",
        "noise in a header": get + b"X: " + noise + b"\r\n\r\n",
        "noise after the head": get + b"\r\n" + noise,
        "long path": b"GET /" + b"x" * size + b" HTTP/1.1\r\n" + host + b"\r\n",
        "long header": get + b"X: " + b"x" * size + b"\r\n\r\n",
        "many headers": get + b"".join(b"X%d: y\r\n" % number for number in range(size // 20)) + b"\r\n",
        "NUL in a header": get + b"X: a\x00b\r\n\r\n",
        "bare line feeds": get.replace(b"\r\n", b"\n") + b"\n",
        "folded header": get + b"X: a\r\n b\r\n\r\n",
        "no host": b"GET /v1/products HTTP/1.1\r\n\r\n",
        "HTTP/0.9": b"GET /v1/products\r\n\r\n",
        "HTTP/1.0": b"GET /v1/products HTTP/1.0\r\n\r\n",
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "HTTP/9.9": b"GET / HTTP/9.9\r\n\r\n",
        "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise,
        "absolute path": b"GET http://evil.test/v1/products HTTP/1.1\r\n" + host + b"\r\n",
        "authority": b"CONNECT evil.test:443 HTTP/1.1\r\n" + host + b"\r\n",
        "asterisk": b"OPTIONS * HTTP/1.1\r\n" + host + b"\r\n",
        "lower case method": b"get /v1/products HTTP/1.1\r\n" + host + b"\r\n",
        "upgrade": get + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "upgrade to h2c": get + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
        "upgrade and body": post + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 9\r\n\r\n" + get,
        "trailers": post + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + auth + b"X" * size + b"\r\n\r\n",
        "two authorizations": get + auth + auth + b"\r\n",
        "key not ASCII": get + b"Authorization: Bearer \xff\xfe\r\n\r\n",
        "expecting": post + b"Expect: 100-continue\r\nContent-Length: 13\r\n\r\n",
        "smuggled": post + b"Content-Length: 4\r\n\r\nGET /v1/products HTTP/1.1\r\n\r\n",
        "pipelined": (get + b"\r\n") * chance.randrange(2, 20),
        "cut short": (post + b"Content-Length: 13\r\n\r\n" + body)[: chance.randrange(1, 150)],
    }
    name = chance.choice([*kinds])
    raw = kinds[name]
    if chance.random() < 0.3:
        place_ = chance.randrange(len(raw))
        raw = raw[:place_] + chance.randbytes(1) + raw[place_ + 1 :]
    return name, raw
