"""A real API with a worker, and accounts with resources of every kind."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from tests.support import fatura_processes
from tests.support.account_filler import PATIENCE_SECONDS, Account, Resources, fill
from tests.support.postgres_processes import until
from tests.support.unlimited import LOOPBACK, UNLIMITED


@dataclass(frozen=True, slots=True)
class FilledAccount:
    """An account with resources. `stranger_key` is the API key of another account."""

    url: str
    api_key: str
    api_key_id: str
    stranger_key: str
    merchant_url: str
    resources: Resources

    def works(self) -> bool:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        return httpx.get(f"{self.url}/v1/integration", headers=headers).status_code == 200


@dataclass(frozen=True, slots=True)
class Engine:
    """A running API and worker, with a merchant server that both may call."""

    url: str
    environment: dict[str, str]
    merchant_url: str

    def filled_account(self) -> FilledAccount:
        api_key = _open_account(self.environment)
        headers = {"Authorization": f"Bearer {api_key}"}
        with httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_SECONDS) as client:
            account = Account(client)
            [own_key] = account.all("/v1/integration/api-keys")
            resources = fill(account, self.merchant_url)
        return FilledAccount(
            self.url, api_key, own_key["id"], _open_account(self.environment), self.merchant_url, resources
        )


def _open_account(environment: dict[str, str]) -> str:
    create = ("account", "create", "Test", "--mode", "sandbox", "--json")
    return json.loads(fatura_processes.run_here(*create, env=environment).stdout)["apiKey"]


@contextmanager
def running_engine(database_url: str, folder: Path) -> Generator[Engine]:
    """Run an API process and a worker process during the block. Fails if either ends before the block does."""
    environment = fatura_processes.environment(
        database_url,
        FATURA_DATA_DIR=str(folder),
        FATURA_LOG_LEVEL="error",
        FATURA_OUTBOUND_ALLOW=LOOPBACK,
        **UNLIMITED,
    )
    port = fatura_processes.free_port()
    with (
        _merchant() as merchant_url,
        fatura_processes.running("api", "--port", str(port), env=environment, output=folder / "api") as api,
        fatura_processes.running("worker", env=environment, output=folder / "worker") as worker,
    ):
        until(lambda: fatura_processes.serves(port), seconds=PATIENCE_SECONDS)
        yield Engine(f"http://127.0.0.1:{port}", environment, merchant_url)
        assert (api.process.poll(), worker.process.poll()) == (None, None), api.said() + worker.said()


class _Answers(BaseHTTPRequestHandler):
    """The merchant server. It answers a POST to `/later` with an error, and every other POST with a price."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b'{"amount":1250}'
        self.send_response(500 if self.path == "/later" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the parent class
        """Log nothing."""


@contextmanager
def _merchant() -> Generator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
