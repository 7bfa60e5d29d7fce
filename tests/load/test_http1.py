"""Framing: whatever the cuts, the body is the body, and each piece has its read's time."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.load.http1 import FramingError, ResponseReader, State

OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZES: dict[bytes, int] = {}


def read(pieces: list[bytes], *, at_once: int = 1) -> ResponseReader:
    """Read pieces that arrived at 0, 1, 2, …, so many of them with each call."""
    reader = ResponseReader(SIZES)
    for start in range(0, len(pieces), at_once):
        some = pieces[start : start + at_once]
        assert reader.feed(range(start, start + len(some)), some) == b""
    return reader


def whole(reader: ResponseReader) -> bytes:
    return b"".join(piece for _, piece in reader.body)


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def chunked(payloads: list[bytes], *, extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = [b"%x%s\r\n%s\r\n" % (len(p), extension, p) for p in payloads if p]
    return b"".join([OK, *chunks, b"0\r\n", trailer, b"\r\n"])


PAYLOADS = st.lists(
    st.binary(min_size=1, max_size=30)
    | st.sampled_from([b"\r\n", b"\r\n0\r\n\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"\n\n"]),
    max_size=8,
)
CUTS = st.lists(st.integers(0, 2000), max_size=25)


@settings(deadline=None, max_examples=100)
@given(
    PAYLOADS,
    CUTS,
    st.sampled_from([b"", b";x=1", b" ; x"]),
    st.sampled_from([b"", b"X-Sum: 1\r\n", b"A: b\r\nC: d\r\n"]),
    st.integers(1, 5),
)
def test_a_chunked_body_does_not_depend_on_the_cuts(payloads, cuts, extension, trailer, at_once):
    data = chunked(payloads, extension=extension, trailer=trailer)
    reader = read(split(data, cuts), at_once=at_once)
    assert (reader.state, reader.status, reader.may_be_reused) == (State.DONE, 200, True)
    assert whole(reader) == b"".join(payloads)


@settings(deadline=None, max_examples=100)
@given(PAYLOADS.filter(bool), CUTS, st.integers(1, 5))
def test_each_byte_has_the_time_of_a_read_that_had_come(payloads, cuts, at_once):
    """The last byte of a piece came with the read that stamps it; no piece spans a later one."""
    data = chunked(payloads)
    pieces = split(data, cuts)
    arrival = [place for place, piece in enumerate(pieces) for _ in piece]
    at = len(OK)
    expected: list[int] = []
    for payload in payloads:
        at = data.index(b"\r\n", at) + 2
        expected += arrival[at : at + len(payload)]
        at += len(payload) + 2
    body = read(pieces, at_once=at_once).body
    ends = list(itertools.accumulate(len(piece) for _, piece in body))
    assert [stamp for stamp, _ in body] == [expected[end - 1] for end in ends]


@settings(deadline=None, max_examples=50)
@given(PAYLOADS.filter(bool), CUTS, st.data())
def test_what_is_cut_off_is_not_complete(payloads, cuts, data):
    raw = chunked(payloads)
    raw = raw[: data.draw(st.integers(1, len(raw) - 1))]
    reader = read(split(raw, cuts))
    assert not reader.end()
    assert b"".join(payloads).startswith(whole(reader))


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60), CUTS, st.integers(1, 4))
def test_a_body_of_stated_length(body, cuts, at_once):
    raw = b"HTTP/1.1 400 Bad\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    reader = read(split(raw, cuts), at_once=at_once)
    assert (reader.state, reader.status, reader.reason) == (State.DONE, 400, "Bad")
    assert (whole(reader), reader.may_be_reused) == (body, True)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60), CUTS)
def test_a_body_that_ends_with_the_connection(body, cuts):
    reader = read(split(b"HTTP/1.0 200 OK\r\n\r\n" + body, cuts))
    assert reader.state is State.UNTIL_EOF
    assert reader.end()
    assert (whole(reader), reader.may_be_reused) == (body, False)


@settings(deadline=None, max_examples=50)
@given(CUTS)
def test_interim_responses_are_read_over(cuts):
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + chunked([b"a"])
    assert whole(read(split(raw, cuts))) == b"a"


@pytest.mark.parametrize(
    ("head", "reused"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: Keep-Alive, Close", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1", True),
    ],
)
def test_whether_a_connection_may_be_used_again(head, reused):
    assert read([head + b"\r\n\r\nx"]).may_be_reused is reused


@pytest.mark.parametrize("behind", [b"HTTP/1.1 200 OK\r\n", b"x", b"\r\n"])
def test_bytes_behind_the_end_forbid_it(behind):
    for raw in (chunked([b"a"]), b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na"):
        for reader in (read([raw + behind]), read([raw, behind])):
            assert (reader.state, whole(reader)) == (State.DONE, b"a")
            assert not reader.may_be_reused


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_a_response_without_body(status):
    assert read([b"HTTP/1.1 %s\r\n\r\n" % status]).state is State.DONE


@pytest.mark.parametrize(
    "field",
    [b"Content-Encoding: gzip", b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: br"],
)
def test_what_is_odd_is_given_back_whole(field):
    raw = b"HTTP/1.1 200 OK\r\n" + field + b"\r\n\r\nbody"
    reader = ResponseReader(SIZES)
    assert reader.feed([1], [raw[:20]]) == b""
    assert reader.feed([2, 3], [raw[20:40], raw[40:]]) == raw
    assert reader.state is State.ODD
    assert field.split(b": ")[1].decode() in reader.odd


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        OK + b"zz\r\n",
        OK + b"0x5\r\nhello\r\n",
        OK + b"-5\r\nhello\r\n",
        OK + b"5_0\r\nhello\r\n",
        OK + b"5\r\nhelloworld\r\n",
        OK + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        OK + b"1" * 70_000,
    ],
)
def test_what_is_no_http_is_refused_however_it_is_cut(raw):
    with pytest.raises(FramingError):
        read([raw])
    with pytest.raises(FramingError):
        read([raw[:7], raw[7 : len(raw) - 3], *(bytes([byte]) for byte in raw[-3:])])
