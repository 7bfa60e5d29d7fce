from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.load.sse import Event, EventParser


def read(pieces: list[bytes]) -> list[Event]:
    parser = EventParser()
    return [event for piece in pieces for event in parser.feed(piece)]


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_rules(end):
    stream = end.join([b"event: a", b"data: 1", b"", b"data:2", b"data", b"data:  3", b"", b""])
    assert read([stream]) == [Event("a", b"1"), Event("", b"2\n\n 3")]


def test_comments_ids_and_retry_are_read_over():
    assert read([b": ping\n\nid: 7\nretry: 9\ndata: x\n:\n\n"]) == [Event("", b"x")]


def test_an_event_without_data_is_none_and_its_name_does_not_leak():
    assert read([b"event: ping\n\ndata: x\n\n"]) == [Event("", b"x")]


def test_an_empty_data_line_is_an_empty_event():
    assert read([b"data:\n\ndata\n\n"]) == [Event("", b""), Event("", b"")]


def test_byte_order_mark_only_at_the_start():
    assert read([b"\xef\xbb", b"\xbfdata: \xef\xbb\xbfx\n\n"]) == [Event("", b"\xef\xbb\xbfx")]


def test_an_event_comes_with_the_read_that_completes_it():
    parser = EventParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [Event("", b"a")]  # the CR alone ends the line
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [Event("", b"b")]


def test_what_is_left_unended():
    parser = EventParser()
    parser.feed(b"data: a\n\ndata: b\ndata: c")
    assert parser.close() == Event("", b"b\nc")
    assert parser.close() is None


def test_a_line_of_megabytes():
    line = b"x" * 3_000_000
    pieces = split(b"data: " + line + b"\n\n", list(range(0, 3_000_000, 65536)))
    assert read(pieces) == [Event("", line)]


PARTS = st.sampled_from(
    [b"data: ", b"data:", b"data", b"event: e", b"\n", b"\r", b"\r\n", b"\n\n", b":c", b"id: 1"]
)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(PARTS | st.text(max_size=6).map(str.encode), max_size=25).map(b"".join),
    st.lists(st.integers(0, 500), max_size=12),
)
def test_events_do_not_depend_on_the_splits(data, cuts):
    whole = EventParser()
    expected = (whole.feed(data), whole.close())
    parser = EventParser()
    events = [event for piece in split(data, cuts) for event in parser.feed(piece)]
    assert (events, parser.close()) == expected


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.sampled_from([b"data: {}\n\n", b"data: a\nb\n\n", b"data: \n\n", b"data: x\r\n\r\n"])
        | st.lists(PARTS, max_size=4).map(b"".join),
        max_size=10,
    )
)
def test_the_short_way_for_whole_events_makes_no_difference(pieces):
    parser, plain = EventParser(), EventParser()
    for piece in pieces:
        data = parser.whole_event(piece)
        events = parser.feed(piece) if data is None else [Event("", data)]
        assert events == plain.feed(piece)
    assert parser.close() == plain.close()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=40)))
def test_data_comes_through_unchanged_byte_by_byte(payloads):
    stream = b"".join(b"data: " + text.encode() + b"\r\n\r\n" for text in payloads)
    events = read([bytes([byte]) for byte in stream])
    assert [event.data.decode() for event in events] == payloads
