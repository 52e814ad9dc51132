"""The example merchant server in its own process."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.support.fatura_processes import environment
from tests.support.world import Json
from tests.tidy.sources import ROOT

PROGRAM = ROOT / "examples/merchant/app.py"


@dataclass(frozen=True, slots=True)
class ExampleMerchant:
    url: str

    def summary(self) -> Json:
        return httpx.get(f"{self.url}/summary", timeout=10).json()

    def post(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.post(f"{self.url}{path}", content=body, headers=named, timeout=10)


@contextmanager
def example_merchant(secret: str, *, port: int = 0) -> Generator[ExampleMerchant]:
    """Run the example merchant with only the standard library. If `port` is 0, it listens on a free port."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(PROGRAM), "--port", str(port), "--until-stdin-closes"],
        env=environment(FATURA_INTEGRATION_SECRET=secret),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield ExampleMerchant(process.stdout.readline().strip())
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
