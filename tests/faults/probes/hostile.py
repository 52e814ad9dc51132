"""Values, bytes, headers, paths and queries for bad requests."""

import random
from collections.abc import Callable
from urllib.parse import quote

ABSENT = "(absent)"
_NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    4,
    12,
    13,
    20,
    21,
    28,
    29,
    32,
    100,
    101,
    2**31 - 1,
    2**31,
    999_999_999_999,
    10**12,
)
_ODD_NUMBERS = (-(2**31), 10**13, 2**53, 2**62, 2**63, 2**64, 10**39, 10**40, 10**5000)
_LENGTHS = (1, 10, 11, 18, 19, 120, 121, 200, 201, 254, 255, 300, 301, 500, 501, 2048, 2049, 9000)
_TEXTS = (
    '""', '" "', r'"\u0000"', r'"a\u0000b"', r'"\ud800"', r'"\udc00x"', r'"\ud83d\ude00"', '"\u200b"', '"\u00e9"',
    '"\u202e"', "\"'; x--\"", '"%00"', '"../../x"', '"null"', '"true"', '"1"', '"NaN"', '"a@b"', '"@"', '"a@b@c.test"',
    '"http://127.0.0.1/"', '"https://x.test/"', '"https://169.254.169.254/"', '"file:///x"', '"https://u:p@x.test/"',
    '"2026-02-30"', '"2026-13-01"', '"0000-00-00"', '"9999-12-31"', '"2026-1-1"', '"10000-01-01"', '"card"', '"pix"',
    '"boleto"', '"fixed"', '"endpoint"', '"sandbox"', '"stripe"', '"00000000-0000-0000-0000-000000000000"',
    '"urn:uuid:00000000-0000-0000-0000-000000000000"', '"{00000000-0000-0000-0000-000000000000}"',
)  # fmt: skip
TOKENS = (
    *map(str, _NUMBERS),
    *(str(number) if number < 10**41 else "1" + "0" * 5000 for number in _ODD_NUMBERS),
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e2",
        "1.0",
        "10.5",
        "1e400",
        "-0",
        "0.1",
        "01",
        "+1",
        "0x1",
        "1_000",
        "\uff11",
    ),
    *(
        "true",
        "false",
        "null",
        "{}",
        "[]",
        "[[]]",
        "[null]",
        '{"": 1}',
        "[1, 2]",
        '{"a": {"b": []}}',
        "",
        "nul",
        "@",
    ),
    *('"' + "x" * length + '"' for length in _LENGTHS),
    *('"' + "\U0001f600" * length + '"' for length in (60, 120, 121)),
    *_TEXTS,
    *("[" * depth + "]" * depth for depth in (31, 33, 1000, 100_000)),
    '{"a":' * 40 + "1" + "}" * 40,
    "[" + ",".join("1" * 1 for _ in range(1500)) + "]",
)
"""JSON values, valid and invalid, that replace a valid value."""

CORRUPTIONS: tuple[tuple[str, Callable[[bytes, random.Random], bytes]], ...] = (
    ("media type", lambda body, _chance: body),
    ("truncated", lambda body, chance: body[: chance.randrange(len(body) or 1)]),
    (
        "byte changed",
        lambda body, chance: bytes(
            chance.randrange(256) if chance.random() < 0.02 else each for each in body
        ),
    ),
    ("BOM", lambda body, _chance: b"\xef\xbb\xbf" + body),
    ("UTF-16", lambda body, _chance: body.decode("utf-8", "replace").encode("utf-16")),
    ("latin-1", lambda body, _chance: body + b"\xe9"),
    ("twice", lambda body, _chance: body + body),
    ("trailing", lambda body, _chance: body + b"\x00"),
    ("comment", lambda body, _chance: b"/* */" + body),
    ("list", lambda body, _chance: b"[" + body + b"]"),
    ("empty", lambda _body, _chance: b""),
    ("blank", lambda _body, _chance: b" \n"),
    ("oversized", lambda body, _chance: body + b" " * (256 * 1024)),
    ("a scalar", lambda _body, chance: chance.choice(TOKENS).encode()),
    ("single quotes", lambda body, _chance: body.replace(b'"', b"'")),
)

MEDIA_TYPES = (
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json5", "",
    "application/json; charset=latin-1", "application/json; charset=utf-16", "application/jsonx", "json",
    "application/json, text/plain", "application/xml", "application/merge-patch+json", "\x00", "x" * 5000,
)  # fmt: skip
HEADERS = {
    "Idempotency-Key": ("", " ", "x" * 255, "x" * 256, "x" * 9000, "a b", "\xe9", "a\tb", ABSENT, '"q"', "k,k"),
    "Authorization": (
        "", "Bearer", "Bearer ", "bearer x", "Basic eDp5", "Bearer  rk_test_x", "Bearer rk_test_" + "0" * 22,
        "Bearer rk_test_" + "z" * 22 + "_" + "0" * 43, "Bearer rk_live_" + "0" * 22 + "_" + "0" * 43, "x" * 9000,
        "Bearer rk_test_" + "0" * 22 + "_" + "\xe9" * 43, "Bearer \x00", ABSENT, "Token x", "Bearer a, Bearer b",
    ),
    "X-Request-Id": ("", " ", "x" * 128, "x" * 129, "\xe9", "a b", "x" * 9000, "\x00", "%0d%0aX: y"),
    "Content-Length": ("-1", "x", "99999999999999999999", "0", "1", "262145", "+5", "5, 5", "\xb2"),
    "Content-Type": MEDIA_TYPES,
    "Accept": ("text/html", "application/xml;q=1", "x" * 4000),
    "Content-Encoding": ("gzip", "br", "x"),
    "Expect": ("100-continue", "x"),
    "Range": ("bytes=0-1",),
    "If-None-Match": ("*",),
    "Host": ("", "evil.test", "x" * 4000),
    "X-Forwarded-For": ("127.0.0.1", "x" * 4000),
    "X-Http-Method-Override": ("DELETE",),
    "Cookie": ("a=b", "x" * 4000),
}  # fmt: skip
METHODS = (
    "GET",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PURGE",
    "get",
    "G\xc8T",
)
PATH_PARTS = (
    "%00", "%2f", "%2F..%2F", "%252f", "%252e%252e", "..", ".", "", "%", "%zz", "%c3%28", "%ff", "%ed%a0%80", "{}%00",
    "{}%20", "{}/", "{};x=1", "{}%0a", "%20{}", "{}%EF%BC%91", "{{}}", "urn:uuid:{}", "x" * 300, "x" * 9000, "{}.json",
    "null", "undefined", "-1", "0", "1e9", "%F0%9F%98%80", "'%20OR%201=1--", "$%7Bx%7D", "{}%E2%80%8B", "*", "~",
    "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "%u0041", "{}{}", "V1", "v2",
)  # fmt: skip
PARAMETERS = (
    "page", "pageSize", "limit", "cursor", "type", "status", "externalRef", "archived", "planId", "customerId",
    "customerExternalRef", "subscriptionId", "invoiceId", "dueFrom", "dueTo", "x", "", "page[]", "%70age", "page%00",
)  # fmt: skip
QUERY_VALUES = (
    *map(str, (*_NUMBERS, *_ODD_NUMBERS[:-1])),
    "1" + "0" * 3000, "1e9", "1.0", "", "+", "%20", "%00", "%ff", "%ed%a0%80",
    "%EF%BC%91", "true", "TRUE", "null", "[]", "paid", "PAID", "invoice.paid", "2026-02-30", "9999-12-31", "2026-01-01",
    "00000000-0000-0000-0000-000000000000", "x" * 121, "x" * 9000, "%zz", "%", quote("' or 1=1--"), "a;b", "a#b", "-0",
)  # fmt: skip
