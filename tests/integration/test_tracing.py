"""With the OTEL_ variables, processes send traces to a collector. Without them, processes load no exporter."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.fatura_processes import environment, free_port, run_here, running, serves
from tests.support.postgres_processes import until

SENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""The `traceparent` of a client, with the sampled flag."""


@dataclass(slots=True)
class Seen:
    """A span as the collector got it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    links: list[str]
    attributes: dict[str, Any]
    service: str


@dataclass(slots=True)
class Collector:
    url: str = ""
    spans: list[Seen] = field(default_factory=list[Seen])

    def named(self, name: str) -> list[Seen]:
        return [each for each in self.spans if each.name == name]

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            (service,) = [
                each.value.string_value for each in resource.resource.attributes if each.key == "service.name"
            ]
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                values = {
                    each.key: each.value.string_value or each.value.int_value for each in span.attributes
                }
                ids = (span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                self.spans.append(
                    Seen(span.name, *ids, [each.trace_id.hex() for each in span.links], values, service)
                )


@contextmanager
def collecting() -> Generator[Collector]:
    """Run an OTLP/HTTP collector."""
    collector = Collector()

    class Receive(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receive)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


def logged(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]


@contextmanager
def receiving(got: list[tuple[str, str]]) -> Generator[str]:
    """Run a merchant's webhook and price endpoint, and yield their host and port.

    Add the path and the `traceparent` of each request to `got`.
    """

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, self.headers["traceparent"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"amount": 100}')

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def api_of(account: dict[str, str], port: int) -> httpx.Client:
    """Return a client of the API. Its requests have the `traceparent` SENT."""
    headers = {"Authorization": f"Bearer {account['apiKey']}", "traceparent": SENT}
    return httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", headers=headers, timeout=20)


def subscribe(client: httpx.Client, merchant: str) -> None:
    """Register a webhook, and subscribe a customer to a variable product. The last request has the id `mine`."""
    assert client.put("/integration/webhook", json={"url": f"http://{merchant}/hook"}).status_code == 200
    pricing = {"mode": "endpoint", "url": f"http://{merchant}/price", "capCents": 100}
    product = _made(client, "/products", {"name": "Gym", "pricing": pricing})
    items = [{"productId": product["id"]}]
    body = {"name": "Monthly", "periodMonths": 1, "defaultPaymentMethod": "pix", "items": items}
    plan = _made(client, "/plans", body)
    customer = {"externalRef": "a", "name": "Ana Secret", "email": "ana@example.com"}
    _made(client, "/subscriptions", {"planId": plan["id"], "customer": customer}, request_id="mine")


@pytest.mark.faults
def test_a_request_its_log_lines_and_its_calls_share_a_trace(database_url: str, tmp_path: Path) -> None:
    """[D-232]"""
    env = environment(database_url)
    account = json.loads(run_here("account", "create", "Gym", "--mode", "sandbox", "--json", env=env).stdout)
    got: list[tuple[str, str]] = []
    port = free_port()
    with collecting() as collector, receiving(got) as merchant:
        env |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
            "FATURA_OUTBOUND_ALLOW": merchant,
        }
        with (
            running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api,
            running("worker", env=env, output=tmp_path / "worker.log") as worker,
        ):
            until(lambda: serves(port), seconds=60)
            with api_of(account, port) as client:
                subscribe(client, merchant)
                until(lambda: "invoice.issued" in client.get("/events").text, seconds=60)
                events = client.get("/events").json()["data"]
                entries = client.get("/audit").json()["data"]
            until(lambda: {path for path, _ in got} == {"/hook", "/price"}, seconds=60)
            assert (api.stop(), worker.stop()) == (0, 0)

    (request,) = collector.named("POST /v1/subscriptions")
    assert (request.service, request.parent_id, request.links) == ("fatura", "", [SENT.split("-")[1]])
    assert request.trace_id != SENT.split("-")[1]
    assert request.attributes["fatura.request_id"] == "mine"
    assert request.attributes["http.response.status_code"] == 201
    (line,) = [each for each in logged(tmp_path / "api.log") if each.get("request_id") == "mine"]
    assert (line["trace_id"], line["events"]) == (request.trace_id, request.attributes["fatura.events"])
    (event,) = [each for each in events if each["type"] == "subscription.created"]
    assert line["events"] == f"{event['sequence']}-{event['sequence']}"
    (entry,) = [each for each in entries if each["requestId"] == "mine"]
    assert entry["action"] == "subscription.create"
    statements = [
        each for each in collector.spans if each.trace_id == request.trace_id and each is not request
    ]
    assert {each.attributes["db.system.name"] for each in statements} == {"postgresql"}
    assert any("INSERT INTO subscription" in each.attributes["db.query.text"] for each in statements)
    assert {each.parent_id for each in statements} == {request.span_id}

    roots = [each.name for each in collector.spans if not each.parent_id]
    assert [name for name in roots if not name.startswith(("lane ", "GET /", "POST /", "PUT /"))] == []
    lanes = {each.span_id: each.name for each in collector.spans if each.name.startswith("lane ")}
    calls = {f"00-{each.trace_id}-{each.span_id}": each for each in collector.named("POST")}
    sent_by = {(path, lanes[calls[header.rpartition("-")[0]].parent_id]) for path, header in got}
    assert sent_by == {("/hook", "lane push"), ("/price", "lane pricing")}
    created = collector.named("gateway create_charge")
    assert {(lanes[each.parent_id], each.attributes["fatura.provider"]) for each in created} == {
        ("lane issuance", "sandbox")
    }
    assert not re.search("Ana Secret|ana@example", repr(collector.spans))


def _made(client: httpx.Client, path: str, body: object, *, request_id: str = "other") -> Any:
    answer = client.post(path, json=body, headers={"Idempotency-Key": path, "X-Request-Id": request_id})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.faults
def test_a_malformed_or_repeated_header_is_ignored(database_url: str, tmp_path: Path) -> None:
    """[D-232]"""
    port = free_port()
    other = SENT.replace("0af7", "0af8")
    sent = [[SENT], ["00-zz-b7ad6b7169203331-01"], ["00-" + "0" * 32 + "-b7ad6b7169203331-01"], [SENT, other]]
    with collecting() as collector:
        env = environment(database_url) | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }
        with running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api:
            until(lambda: serves(port), seconds=60)
            for number, values in enumerate(sent):
                headers = [("traceparent", each) for each in values]
                url = f"http://127.0.0.1:{port}/v1/plans"
                httpx.get(url, headers=[*headers, ("X-Request-Id", f"r{number}")])
            assert api.stop() == 0
    links = {each.attributes["fatura.request_id"]: each.links for each in collector.named("GET /v1/plans")}
    assert links == {"r0": [SENT.split("-")[1]], "r1": [], "r2": [], "r3": []}


@pytest.mark.faults
def test_a_collector_that_is_down_delays_nothing(database_url: str, tmp_path: Path) -> None:
    """[D-232]"""
    port = free_port()
    env = environment(database_url) | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    with running("api", "--port", str(port), env=env, output=tmp_path / "api.log") as api:
        until(lambda: serves(port), seconds=60)
        assert httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=2).status_code == 200
        assert api.stop() == 0


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is 'zipkin'; it must be otlp or none"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; it must be http/protobuf",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is 'grpc'; it must be http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:4318"},
            "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL that begins with http:// or https://",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "grpc://c"},
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be a URL that begins with http:// or https://",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_TRACES_SAMPLER": "traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "5%",
            },
            "OTEL_TRACES_SAMPLER_ARG is '5%'; it must be a number from 0 to 1, such as 0.05",
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c",
                "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "5",
            },
            "OTEL_TRACES_SAMPLER_ARG is '5'; it must be a number from 0 to 1, such as 0.05",
        ),
    ],
    ids=["exporter", "protocol", "protocol of traces", "no URL", "URL of traces", "no number", "no ratio"],
)
def test_unsupported_variables_are_refused(database_url: str, variables: dict[str, str], says: str) -> None:
    """[D-232]"""
    ended = run_here("check", env=environment(database_url) | variables)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == f"fatura: {says}"


LOADED = """
import asyncio, os, sys
from fatura import settings, tracing
from fatura.api.app import create_app
from fatura.bootstrap import opened

async def main():
    read = settings.read(os.environ)
    async with opened(read, read.database_url) as deps:
        create_app(deps)
    # FastAPI itself imports the API of OpenTelemetry
    loaded = [each for each in sys.modules if each.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
    print(loaded, tracing.is_on())

asyncio.run(main())
"""


@pytest.mark.faults
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    ],
    ids=["unset", "disabled", "none"],
)
def test_nothing_is_loaded_while_traces_are_off(database_url: str, variables: dict[str, str]) -> None:
    """[D-232]"""
    ended = subprocess.run(
        [sys.executable, "-c", LOADED],
        env=environment(database_url) | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.stdout == "[] False\n", ended.stderr
