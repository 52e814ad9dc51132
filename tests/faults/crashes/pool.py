"""Start the worker processes that execute the trials, and the process with the test gateways and merchants."""

import itertools
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TextIO

from fatura.store.vault import new_key
from tests.faults import place

WORKERS = place.process_count()
"""Number of concurrent trials."""

Job = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """Sockets to the worker processes.

    A worker can run only flows whose fixtures it has created in its own database.
    """

    lines: list[TextIO]

    def open(self, server_url: str) -> None:
        for number, line in enumerate(self.lines):
            line.write(json.dumps([server_url, f"crash_{number}"]) + "\n")

    def do(
        self, rows: Sequence[Sequence[Job]], report_done: Callable[[int], None] = lambda _: None
    ) -> list[list[Any]]:
        done = itertools.count(1)

        def row(line: TextIO, jobs: Sequence[Job]) -> list[Any]:
            results: list[Any] = []
            for job in jobs:
                results.append(_exchange(line, job))
                report_done(next(done))
            return results

        with ThreadPoolExecutor(WORKERS) as threads:
            return list(threads.map(row, self.lines, rows))


def _exchange(line: TextIO, job: Job) -> Any:
    line.write(json.dumps(job) + "\n")
    line.flush()
    answer = line.readline()
    assert answer, f"a worker ended at {job}"
    return json.loads(answer)


@contextmanager
def worker_pool() -> Generator[WorkerPool]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fatura-crashes-"))
        external = stack.enter_context(_started("tests.faults.crashes.external", folder))
        assert external.stdout is not None, "stdout is a pipe"
        url = external.stdout.readline().strip()
        assert url, "the external services did not start"
        pairs = [socket.socketpair() for _ in range(WORKERS)]
        theirs = [pair[1] for pair in pairs]
        words = [folder, url, new_key(), *(str(each.fileno()) for each in theirs)]
        stack.enter_context(_started("tests.faults.crashes.worker", *words, lines=theirs))
        lines: list[TextIO] = []
        for mine, _ in pairs:
            stack.enter_context(mine)
            lines.append(stack.enter_context(mine.makefile("rw")))
        yield WorkerPool(lines)


@contextmanager
def _started(
    module: str, *words: str, lines: Sequence[socket.socket] = ()
) -> Generator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", module, *words]
    passed = [line.fileno() for line in lines]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, pass_fds=passed
    ) as process:
        for line in lines:
            line.close()
        try:
            yield process
        finally:
            process.kill()
