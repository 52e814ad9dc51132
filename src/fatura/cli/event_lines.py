"""What `fatura listen` shows: a line an attempt on standard output, everything else on standard error."""

import json
from datetime import UTC, datetime

import typer
from rich.console import Console

from fatura.cli.following import Event
from fatura.cli.forwarding import Attempt

TYPE_CHARS = 26
"""The longest type of an event."""


class EventLines:
    """Prints lines for people, or for programs, one JSON object each."""

    def __init__(self, *, as_json: bool, skip_failures: bool) -> None:
        """Remember for whom, and what becomes of an event that failed."""
        self._as_json = as_json
        self._after_failure = "skipped" if skip_failures else "trying again"
        self._shown: tuple[int, str] | None = None

    def say(self, text: str) -> None:
        """Tell the person something beside the events."""
        Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)

    def report(self, event: Event, attempt: Attempt) -> None:
        """Print an attempt; people see a failure that repeats itself once."""
        now = datetime.now(UTC)
        if self._as_json:
            typer.echo(json.dumps(_members(event, attempt, now)))
            return
        outcome = attempt.error or str(attempt.status)
        if (event.sequence, outcome) != self._shown:
            self._shown = (event.sequence, outcome)
            what = f"{now.astimezone():%H:%M:%S}  #{event.sequence}  {event.type:<{TYPE_CHARS}}"
            note = "" if attempt.is_delivered else f"  ({self._after_failure})"
            typer.echo(f"{what}  {outcome}  {attempt.latency_ms} ms{note}")


def _members(event: Event, attempt: Attempt, now: datetime) -> dict[str, object]:
    return {
        "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sequence": event.sequence,
        "id": event.event_id,
        "type": event.type,
        "attempt": attempt.number,
        "delivered": attempt.is_delivered,
        "status": attempt.status,
        "latencyMs": attempt.latency_ms,
        "error": attempt.error,
    }
