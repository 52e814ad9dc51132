"""The parser of HTTP responses handles any bytes, however they are split, and stops at fixed limits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fatura.outbound.http.exchange import MAX_BODY_BYTES, MAX_HEADER_BYTES
from fatura.outbound.http.response import MAX_FRAMING_BYTES, Response

ANSWER = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A: b\r\n\r\n"
)
ALL_BYTES = MAX_HEADER_BYTES + MAX_BODY_BYTES + MAX_FRAMING_BYTES


def read(data: bytes, *, pieces: int = 4096) -> Response:
    """Feed data to the parser and return the response.

    Each piece has at most `pieces` bytes, and at most as many bytes as the parser wants.
    """
    response = Response()
    while data and not response.is_ended:
        size = min(pieces, response.wanted_bytes)
        assert size > 0, "a response that has not ended needs more bytes"
        response.feed(memoryview(data[:size]))
        data = data[size:]
    return response


@given(st.integers(1, len(ANSWER)))
def test_a_response_is_the_same_in_any_pieces(pieces):
    """[D-30]"""
    response = read(ANSWER, pieces=pieces)
    assert (response.status, bytes(response.body), response.is_whole) == (200, b"{}", True)


@given(st.binary(max_size=400), st.integers(1, 50))
def test_any_bytes_are_a_fault_or_incomplete(data, pieces):
    """[D-30]"""
    response = read(data, pieces=pieces)
    response.end(was_clean=True)
    assert response.is_ended


@given(st.integers(0, len(ANSWER) - 1), st.binary(max_size=400), st.booleans())
def test_invalid_bytes_inside_a_response_are_a_fault(place, data, was_clean):
    """[D-30]"""
    response = read(ANSWER[:place] + data)
    response.end(was_clean=was_clean)
    assert response.is_ended


@pytest.mark.parametrize(
    ("before", "piece", "most"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n", MAX_HEADER_BYTES),
        (b"HTTP/1.1 200 OK\r\nX-A: ", b"b", MAX_HEADER_BYTES),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", MAX_HEADER_BYTES),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"{", MAX_HEADER_BYTES + MAX_BODY_BYTES),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n{\r\n", ALL_BYTES),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a", ALL_BYTES),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: b\r\n", ALL_BYTES),
    ],
)
@pytest.mark.parametrize("pieces", [1000, 4096])
def test_responses_without_end_are_cut(before, piece, most, pieces):
    """The limits are 16 KiB of headers, 64 KiB of body, and 16 KiB of chunk framing. [D-30 bounds]"""
    response = read(before + piece * (1_000_000 // len(piece)), pieces=pieces)
    assert response.fault is not None
    assert response.bytes_read <= most
    assert len(response.body) <= MAX_BODY_BYTES


@pytest.mark.parametrize(
    ("head", "stays_open"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}x", False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", False),
    ],
)
def test_a_connection_is_kept_only_after_one_complete_response(head, stays_open):
    """[D-30]"""
    assert read(head).leaves_open is stays_open
