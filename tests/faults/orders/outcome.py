"""The outcome of two operations: their responses and the rows that they leave.

Ids and instants are normalized, so that equivalent executions have equal outcomes.
"""

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tests.faults.orders.setup import Rows
from tests.support.world import Json

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|sbxe?_[0-9a-f]{32}")
NEW_ID = re.compile(r"new-[0-9a-f]{10}")
"""The normalized name of an id that the fixture does not have."""
_INSTANT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00|\+00)")
_SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")
_PIX_CHECKSUM = re.compile(r'(bcb\.pix[^"\\]*6304)[0-9A-F]{4}')  # differs, because charges have random ids
_LATENCY = re.compile(r'("latencyMs": )\d+')
_BYTES = re.compile(r"\\\\x([0-9a-f]*)")
_STEP = timedelta(seconds=10)
_REAL = timedelta(days=60)
"""Instants this close to the start of a trial are real time. The account's own clock is years ahead."""

LEFT_OUT: Mapping[str, frozenset[str]] = {
    "account": frozenset({"clock_offset"}),
    "account_counter": frozenset({"untaken_events"}),
    "api_key": frozenset({"last_used_at"}),
    # if two cancellations overlap and the first one ends first, the time that it stored remains after both have ended
    "charge": frozenset({"call_ends_at"}),
    # the audit entries of concurrent requests may have an order that no serial execution has
    "audit_entry": frozenset({"sequence"}),
    "connection_health": frozenset({"looked", "looked_late", "polled_named"}),
    "delivery_attempt": frozenset({"latency_ms"}),
    # a poll resets `polls_first`, unless a webhook arrived after the poll had begun
    "invoice": frozenset({"polls_first"}),
    "pricing_attempt": frozenset({"latency_ms"}),
    "webhook": frozenset({"at_once", "push_at"}),
}
"""Columns that are not compared, because they depend on the speed of the machine or on which batch ran first."""
JITTERED: Mapping[str, frozenset[str]] = {"price_pull": frozenset({"next_attempt_at"})}
"""Columns with random values. Trials compare only whether the value is null."""
ANSWERS_KEPT = "idempotency_key"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both responses and every row of the account. Ids and instants are replaced by normalized names."""

    answers: Mapping[str, str]
    rows: tuple[str, ...]

    def rows_except(self, tables: frozenset[str]) -> list[str]:
        return [row for row in self.rows if row.split(" ", 1)[0] not in tables]

    def rows_of(self, table: str) -> list[str]:
        return [row for row in self.rows if row.split(" ", 1)[0] == table]

    def difference(self, other: "Outcome") -> str:
        """Describe the difference. Rows with `+` are only in this outcome, and rows with `-` are only in `other`."""
        lines = [
            f"{side} answered {mine}, not {other.answers[side]}"
            for side, mine in self.answers.items()
            if mine != other.answers[side]
        ]
        lines += [f"+ {row[:600]}" for row in _without(self.rows, other.rows)]
        lines += [f"- {row[:600]}" for row in _without(other.rows, self.rows)]
        return "\n".join(lines)


def _without(rows: Sequence[str], others: Iterable[str]) -> list[str]:
    left = list(rows)
    for each in others:
        if each in left:
            left.remove(each)
    return left


def outcome_of(answers: Mapping[str, Json], rows: Rows, *, saved: Rows, base: datetime) -> Outcome:
    """Return the normalized outcome. Ids and instants of the fixture stay unchanged.

    Each new id is replaced by a name that depends only on the rows that contain it.
    """
    before = json.dumps(saved)
    known, times = frozenset(_ID.findall(before)), _Times(base, _instants(before))
    written = [(table, _written(table, row, times)) for table, listed in rows.items() for row in listed]
    texts = {side: times.plain(json.dumps(answer, sort_keys=True)) for side, answer in answers.items()}
    names = _names([each for each in written if each[0] != ANSWERS_KEPT], known)

    def named(text: str) -> str:
        return _ID.sub(lambda found: names.get(found[0], found[0]), text)

    return Outcome(
        {side: named(text) for side, text in texts.items()},
        tuple(sorted(f"{table} {named(text)}" for table, text in written)),
    )


def _names(texts: Sequence[tuple[str, str]], known: frozenset[str]) -> dict[str, str]:
    """Compute a name for each new id from the texts that contain it.

    If a text also contains other new ids, they are replaced: by `new` in the first round, and by their names from the
    first round in the second round.
    """
    places: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for place, text in texts:
        for found in set(_ID.findall(text)) - known:
            places[found].append((place, text))
    names = dict.fromkeys(places, "new")
    for _ in range(2):
        names = {each: _name(each, found, names) for each, found in places.items()}
    return names


def _name(each: str, found: Iterable[tuple[str, str]], names: Mapping[str, str]) -> str:
    def written(text: str) -> str:
        return _ID.sub(lambda other: "it" if other[0] == each else names.get(other[0], other[0]), text)

    seen = sorted(f"{place} {written(text)}" for place, text in found)
    return "new-" + hashlib.sha256("\n".join(seen).encode()).hexdigest()[:10]


def _written(table: str, row: dict[str, Any], times: "_Times") -> str:
    jittered = JITTERED.get(table, frozenset())
    kept = {
        name: value and "set" if name in jittered else value
        for name, value in row.items()
        if name not in LEFT_OUT.get(table, ())
    }
    return times.plain(_BYTES.sub(_opened, json.dumps(kept, sort_keys=True)))


def _opened(found: re.Match[str]) -> str:
    """Decode stored bytes that are JSON. Replace all other bytes, which are encrypted or hashed, by `bytes`."""
    try:
        return json.dumps(json.loads(bytes.fromhex(found[1])), sort_keys=True)
    except ValueError:
        return "bytes"


@dataclass(frozen=True, slots=True)
class _Times:
    """Normalizes instants. Instants of the fixture stay unchanged.

    Instants of real time become seconds since the start of the trial, in steps of ten, because a trial may take several
    seconds on a busy machine. All other instants are truncated to the second.
    """

    base: datetime
    known: frozenset[datetime]

    def plain(self, text: str) -> str:
        text = _PIX_CHECKSUM.sub(r"\g<1>", _SECRET.sub("whsec_", text))
        return _INSTANT.sub(self._one, _LATENCY.sub(r"\g<1>0", text))

    def _one(self, found: re.Match[str]) -> str:
        at = _to_the_millisecond(found[0])
        if at in self.known:
            return at.isoformat()
        if abs(at - self.base) < _REAL:
            return f"real time {(at - self.base) // _STEP * 10:+d} s"
        return at.replace(microsecond=0).isoformat()


def _instants(text: str) -> frozenset[datetime]:
    return frozenset(map(_to_the_millisecond, _INSTANT.findall(text)))


def _to_the_millisecond(text: str) -> datetime:
    """Parse an instant, and truncate it to milliseconds as the API does."""
    at = datetime.fromisoformat(text)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
