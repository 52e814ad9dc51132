"""The processes of the crash matrix beside each other: workers that take job after job, and their world outside."""

import json
import queue
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fatura.store.vault import new_key

WORKERS = 3
"""Trials at once: while one waits for PostgreSQL, another has the core."""

Job = dict[str, Any]


@dataclass(slots=True)
class Crew:
    """Workers that wait for jobs."""

    free: "queue.SimpleQueue[subprocess.Popen[str]]"

    def do(self, jobs: Sequence[Job], told: Callable[[int], None] = lambda _: None) -> list[Any]:
        """Have all jobs done, and return their results in order; `told` hears how many are done."""
        done = 0
        results: list[Any] = []
        with ThreadPoolExecutor(WORKERS) as threads:
            for result in threads.map(self._do, jobs):
                done += 1
                results.append(result)
                told(done)
        return results

    def _do(self, job: Job) -> Any:
        worker = self.free.get()
        assert worker.stdin is not None, "it is a pipe"
        assert worker.stdout is not None, "it is a pipe"
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        if not line:
            return {"problems": [f"the worker itself ended with {worker.wait()} at {job}"]}
        self.free.put(worker)
        return json.loads(line)


@contextmanager
def crew(server_url: str) -> Generator[Crew]:
    """Start the workers and the world outside, and end them with the block."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="fatura-crashes-"))
        outside = stack.enter_context(_started("tests.faults.crash_outside", folder))
        assert outside.stdout is not None, "it is a pipe"
        url = outside.stdout.readline().strip()
        assert url, "the world outside did not start"
        free: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        words = (server_url, str(Path(folder)), url, new_key())
        for _ in range(WORKERS):
            free.put(stack.enter_context(_started("tests.faults.crash_worker", *words)))
        yield Crew(free)


@contextmanager
def _started(module: str, *words: str) -> Generator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", module, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
