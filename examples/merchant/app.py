"""An example merchant in one file, with Python's standard library only: a price endpoint and a webhook receiver.

POST /price answers with the price of a variable item in a cycle.

POST /webhooks receives events and handles each event once.

GET /summary returns the numbers of price calls and events.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import SimpleQueue
from typing import Any

try:
    from fatura.signature import HEADER, SignatureError, verify
except ModuleNotFoundError:  # this is a checkout, and Fatura is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    from fatura.signature import HEADER, SignatureError, verify

VARIABLE = "FATURA_INTEGRATION_SECRET"
MAX_BODY_BYTES = 1024 * 1024
IDLE_SECONDS = 60

Answer = tuple[HTTPStatus, dict[str, Any]]


@dataclass(frozen=True)
class Meter:
    """How the use of a product is measured and priced. Prices are integer cents."""

    one: str
    many: str
    cents: int
    most_a_month: int
    fails_first: int = 0
    """Number of live calls for an item that fail before a live call succeeds."""
    is_broken: bool = False


METERS = {
    "classes": Meter("class", "classes", cents=3500, most_a_month=4),
    "towels": Meter("towel", "towels", cents=250, most_a_month=12, fails_first=2),
    "smoothies": Meter("smoothie", "smoothies", cents=1800, most_a_month=9, is_broken=True),
}
"""Meters by the `externalRef` of the product.

For towels, the first two live calls for an item fail. For smoothies, every call fails.
"""


class Counts:
    """Counts of calls and events. A real program stores them in its database."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._price_calls: Counter[str] = Counter()
        self._handled: set[str] = set()
        self._asked: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._types: Counter[str] = Counter()

    def count(self, what: str) -> None:
        with self._lock:
            self._counts[what] += 1

    def count_price_call(self, product: str, request_id: str) -> int:
        """Count a price call. Return the number of calls with this request id so far. A retry repeats the id."""
        with self._lock:
            self._asked[product] += 1
            self._price_calls[request_id] += 1
            return self._price_calls[request_id]

    def count_price_failure(self, product: str) -> None:
        with self._lock:
            self._failed[product] += 1

    def is_new(self, event_id: str) -> bool:
        """Store an event id; return False if it was stored before. An event may arrive twice, and must be handled once.

        A real program inserts the id into a unique column, in the transaction that handles the event.
        """
        with self._lock:
            if event_id in self._handled:
                return False
            self._handled.add(event_id)
            return True

    def handle(self, event: dict[str, Any]) -> None:
        """Handle an event. A real program might send an e-mail to the customer. This program only counts."""
        with self._lock:
            self._types[event["type"]] += 1

    def summary(self) -> dict[str, Any]:
        with self._lock:
            return {
                "priceCalls": dict(self._asked),
                "priceFailures": dict(self._failed),
                "received": self._counts["received"],
                "verified": self._counts["verified"],
                "refused": self._counts["refused"],
                "duplicates": self._counts["duplicates"],
                "events": dict(self._types),
            }


def price(request: dict[str, Any], counts: Counts) -> Answer:
    """Return an item's price in a cycle: `amount` in cents, or `skip` if nothing was used.

    The answer is 404 for a product without a meter, and 503 if the meter fails.
    """
    product = request["product"]["externalRef"]
    meter = METERS.get(product)
    if meter is None:
        return HTTPStatus.NOT_FOUND, {"error": "no such product is metered here"}
    calls = counts.count_price_call(product, request["pricingRequestId"])
    is_late = request["mode"] == "live" and calls <= meter.fails_first
    if meter.is_broken or is_late:
        counts.count_price_failure(product)
        return HTTPStatus.SERVICE_UNAVAILABLE, {"error": f"the meter of {meter.many} cannot be read"}
    used = _used(meter, f"{request['subscription']['externalRef']} {request['cycle']}")
    if used == 0:
        return HTTPStatus.OK, {"skip": True}
    # Fatura calls before the period of the invoice begins, so the price covers the use since the previous call.
    line = f"{used} {meter.one if used == 1 else meter.many} used before {request['period']['start']}"
    return HTTPStatus.OK, {"amount": used * meter.cents, "description": line}


def _used(meter: Meter, what: str) -> int:
    """Return the number of used units. A real program reads its meter. This program derives a number from `what`."""
    digest = hashlib.sha256(f"{meter.one} {what}".encode()).digest()
    return digest[0] % (meter.most_a_month + 1)


class Endpoints(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    @property
    def _merchant(self) -> "Merchant":
        assert isinstance(self.server, Merchant)
        return self.server

    def do_POST(self) -> None:
        """Verify the raw body before parsing it."""
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            error = f"send a Content-Length of at most {MAX_BODY_BYTES} bytes"
            self._answer(HTTPStatus.LENGTH_REQUIRED, {"error": error})
            return
        body = self.rfile.read(int(length))
        try:
            verify(body, self.headers.get(HEADER), secret=self._merchant.secret)
        except SignatureError as error:
            self._merchant.counts.count("refused")
            self._answer(HTTPStatus.UNAUTHORIZED, {"error": str(error)})
            return
        routes = {"/price": self._price, "/webhooks": self._take_event}
        route = routes.get(self.path)
        answer = (HTTPStatus.NOT_FOUND, {"error": "no such route"}) if route is None else route(body)
        self._answer(*answer)

    def do_GET(self) -> None:
        if self.path == "/summary":
            self._answer(HTTPStatus.OK, self._merchant.counts.summary())
        else:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such route"})

    def _price(self, body: bytes) -> Answer:
        return price(json.loads(body), self._merchant.counts)

    def _take_event(self, body: bytes) -> Answer:
        """Queue the event and answer immediately. If the answer comes too late, Fatura sends the event again."""
        event, counts = json.loads(body), self._merchant.counts
        counts.count("received")
        counts.count("verified")
        if counts.is_new(event["id"]):
            self._merchant.inbox.put(event)
        else:
            counts.count("duplicates")
        return HTTPStatus.OK, {}

    def _answer(self, status: HTTPStatus, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Merchant(ThreadingHTTPServer):
    """The server, its counts, and the queue of events to handle."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, *, secret: str) -> None:
        super().__init__((host, port), Endpoints)
        self.secret = secret
        self.counts = Counts()
        self.inbox: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def handle_events(self) -> None:
        """Handle queued events one after another, in a thread of its own."""
        while True:
            self.counts.handle(self.inbox.get())


def main() -> None:
    parser = argparse.ArgumentParser(
        description="An example merchant: a price endpoint and a webhook receiver."
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=9000, help="port to listen on; 0 takes a free one")
    parser.add_argument("--secret", default=os.environ.get(VARIABLE), help=f"default: ${VARIABLE}")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when stdin closes")
    options = parser.parse_args()
    if not options.secret:
        parser.error(f"give the account's integration secret, whsec_..., as --secret or in {VARIABLE}")
    with Merchant(options.host, options.port, secret=options.secret) as merchant:
        threading.Thread(target=merchant.handle_events, daemon=True).start()
        if options.until_stdin_closes:
            threading.Thread(target=_end_with_stdin, args=[merchant], daemon=True).start()
        print(f"http://{options.host}:{merchant.server_port}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            merchant.serve_forever()


def _end_with_stdin(merchant: Merchant) -> None:
    sys.stdin.read()
    merchant.shutdown()


if __name__ == "__main__":
    main()
