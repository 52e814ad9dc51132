"""Create bad requests from valid ones by one or two random mutations."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.faults.probes import hostile
from tests.support.world import Json


@dataclass(frozen=True, slots=True)
class Wire:
    """A request in the form in which it is sent. `done` names the mutations.

    `route` is the operation, or None if a mutation has changed the path or the method.
    """

    route: str | None
    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    done: tuple[str, ...] = ()

    def without(self, name: str) -> "Wire":
        return replace(self, headers=tuple(each for each in self.headers if each[0].lower() != name))

    def having(self, name: str, value: str) -> "Wire":
        return replace(self, headers=(*self.headers, (name, value)))


@dataclass(frozen=True, slots=True)
class Mutator:
    """Changes valid requests at random. `fields` has a sample value for each field name in the OpenAPI document."""

    chance: random.Random
    fields: Mapping[str, Json]

    def make(self, valid: Wire) -> Wire:
        bad = self._once(valid)
        return self._once(bad) if self.chance.random() < 0.2 else bad

    def _once(self, wire: Wire) -> Wire:
        kinds = [(self._headers, 2), (self._path, 2), (self._query, 3 if wire.method == "GET" else 1)]
        kinds += [(self._body, 10), (self._raw_body, 3)] if wire.body else [(self._unwanted_body, 2)]
        if wire.method == "GET":
            kinds = [(self._headers, 3), (self._path, 3), (self._query, 6)]
        (kind,) = self.chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])
        return kind(wire)

    def _body(self, wire: Wire) -> Wire:
        """Change one JSON value, or add, remove or duplicate a member."""
        try:
            body: Any = json.loads(wire.body)
        except (ValueError, RecursionError):  # the body is already corrupted
            return self._raw_body(wire)
        places = [*_places(body)]
        if not places:
            return self._raw_body(wire)
        place = self.chance.choice(places)
        match self.chance.randrange(6):
            case 0 if isinstance(place[-1], str):
                done, text = f"without {place}", json.dumps(_dropped(body, place))
            case 1:
                name = self.chance.choice([*self.fields])
                inside = (
                    _set(body, (*place[:-1], name), self.fields[name]) if isinstance(place[-1], str) else body
                )
                done, text = f"with {name} next to {place}", json.dumps(inside)
            case 2 if isinstance(place[-1], str):
                doubled = json.dumps(_set(body, place, "@@@"))
                name, token = json.dumps(place[-1]), self.chance.choice(hostile.TOKENS)
                done, text = f"{place} twice", doubled.replace('"@@@"', f"1, {name}: {token}")
            case _:
                token = self.chance.choice(hostile.TOKENS)
                done = f"{place} = {token[:40]}"
                text = json.dumps(_set(body, place, "@@@")).replace('"@@@"', token)
        return replace(wire, body=text.encode(), done=(*wire.done, done))

    def _raw_body(self, wire: Wire) -> Wire:
        """Corrupt the bytes of the body, or replace its media type."""
        name, corrupt = self.chance.choice(hostile.CORRUPTIONS)
        if name.startswith("media"):
            media = self.chance.choice(hostile.MEDIA_TYPES)
            return replace(
                wire.without("content-type").having("Content-Type", media), done=(*wire.done, media)
            )
        return replace(wire, body=corrupt(wire.body, self.chance), done=(*wire.done, name))

    def _unwanted_body(self, wire: Wire) -> Wire:
        body = self.chance.choice((b"{}", b'{"a": 1}', b"[]", b"null", b"x", b"\xff", b'{"a":' * 40))
        return replace(wire, body=body, done=(*wire.done, f"body {body[:9]!r}")).having(
            "Content-Type", "application/json"
        )

    def _headers(self, wire: Wire) -> Wire:
        name, values = self.chance.choice([*hostile.HEADERS.items()])
        value = self.chance.choice(values)
        kept = wire if self.chance.random() < 0.2 else wire.without(name.lower())
        done = (*wire.done, f"{name}: {value[:40]!r}{'' if kept is wire else ' instead'}")
        return replace(kept.having(name, value) if value != hostile.ABSENT else kept, done=done)

    def _path(self, wire: Wire) -> Wire:
        """Change a part of the path, or the method."""
        if self.chance.random() < 0.15:
            method = self.chance.choice(hostile.METHODS)
            return replace(wire, method=method, route=None, done=(*wire.done, f"{method} for {wire.method}"))
        parts = wire.path.split("/")
        place = self.chance.randrange(1, len(parts))
        part = self.chance.choice(hostile.PATH_PARTS)
        parts[place] = part.replace("{}", parts[place])
        return replace(
            wire, path="/".join(parts), route=None, done=(*wire.done, f"path {place}: {part[:40]}")
        )

    def _query(self, wire: Wire) -> Wire:
        count = self.chance.choice((1, 1, 1, 2, 3, 101))
        pairs = [
            f"{self.chance.choice(hostile.PARAMETERS)}={self.chance.choice(hostile.QUERY_VALUES)}"
            for _ in range(count)
        ]
        query = "&".join(pairs)
        return replace(wire, query=query, done=(*wire.done, f"?{query[:80]}"))


def _places(body: Any, path: tuple[str | int, ...] = ()) -> Sequence[tuple[str | int, ...]]:
    found = [path] if path else []
    members = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in members:
        found += _places(value, (*path, name))
    return found


def _set(body: Any, path: tuple[str | int, ...], value: Any) -> Any:
    first, *rest = path
    copy = body.copy()
    copy[first] = _set(copy[first], tuple(rest), value) if rest else value
    return copy


def _dropped(body: Any, path: tuple[str | int, ...]) -> Any:
    first, *rest = path
    copy = body.copy()
    if rest:
        copy[first] = _dropped(copy[first], tuple(rest))
    else:
        del copy[first]
    return copy
