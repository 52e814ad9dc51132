"""The output of `fatura listen`: delivery attempts go to stdout, and everything else goes to stderr."""

import json
from datetime import UTC, datetime

import typer

from fatura.cli.event_stream import StreamEvent
from fatura.cli.listen.forwarding import Post
from fatura.cli.output import echo

TYPE_CHARS = 26
"""Minimum width of the column of event types."""
SHOWN_CHARS = 120
"""Maximum number of characters of the receiver's answer that a line shows."""


class EventLines:
    def __init__(self, *, as_json: bool, skip_failures: bool) -> None:
        self._as_json = as_json
        self._after_failure = "skipped" if skip_failures else "retrying"
        self._shown: tuple[int, str] | None = None

    def print_note(self, text: str) -> None:
        echo(text, err=True)

    def report(self, event: StreamEvent, post: Post) -> None:
        """Print a delivery attempt. In text format, a retry is printed only if the receiver's answer has changed."""
        now = datetime.now(UTC)
        if self._as_json:
            typer.echo(json.dumps(_members(event, post, now)))
            return
        outcome, said = post.error or str(post.status), _shortened(post.body)
        if (event.sequence, outcome + said) != self._shown:
            self._shown = (event.sequence, outcome + said)
            what = f"{now.astimezone():%H:%M:%S}  #{event.sequence}  {event.type:<{TYPE_CHARS}}"
            note = "" if post.is_delivered else f"  ({self._after_failure})"
            echo(f"{what}  {outcome}  {post.latency_ms} ms{note}  {said}".rstrip())


def _shortened(body: str) -> str:
    """Return the beginning of a response on one line."""
    text = " ".join(body.split())
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}..."


def _members(event: StreamEvent, post: Post, now: datetime) -> dict[str, object]:
    return {
        "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sequence": event.sequence,
        "id": event.event_id,
        "type": event.type,
        "attempt": post.number,
        "delivered": post.is_delivered,
        "status": post.status,
        "latencyMs": post.latency_ms,
        "error": post.error,
        "body": post.body,
    }
