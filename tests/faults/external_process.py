"""Run the test gateway and merchant (`external`) in a child process, which ends with the run."""

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.faults.clock import FastClock
from tests.faults.external import SECRETS_FILE
from tests.faults.gateway.faults import GatewayFaults


def share_secrets(folder: Path, secrets: Mapping[str, Sequence[str]]) -> None:
    """Store the signing secrets of each account in a file. The test merchants check signatures with these secrets.

    Store the secrets of an account before the engine first calls the merchant of this account.
    """
    (folder / SECRETS_FILE).write_text(json.dumps(secrets))


@contextmanager
def external(
    folder: Path, *, clock: FastClock, faults: GatewayFaults, module: str = "tests.faults.external"
) -> Generator[str]:
    """Run the test gateway and merchants during the block, and yield their URL. They write a journal into `folder`."""
    if not (folder / SECRETS_FILE).exists():
        share_secrets(folder, {})
    words = [sys.executable, "-m", module, str(folder), str(clock), str(faults)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().decode().strip()
            assert url, "the external services did not start"
            yield url
        finally:
            process.kill()
