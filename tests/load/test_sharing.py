"""Requests are taken once each, whoever takes them; outcomes are merged whatever brought them."""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import make_cell

from bench.errors import DiskError
from bench.load.frames import Outcome, framed, to_outcome
from bench.load.generator import LoadClient
from bench.load.shared_requests import OutcomeFile, Request, RequestReader, RequestWriter
from bench.load.stream import StreamRecord
from bench.load.work import plan_requests
from bench.model import RequestStatus

REQUESTS = st.lists(
    st.builds(
        Request,
        st.integers(0, 2**40),
        st.binary(max_size=50),
        st.none() | st.integers(0, 2**50),
    ),
    max_size=30,
)


@pytest.fixture
def shared():
    writer = RequestWriter().share()
    yield writer
    writer.release()


@settings(deadline=None, max_examples=50)
@given(jobs=st.lists(REQUESTS, min_size=1, max_size=3), turns=st.lists(st.integers(0, 2)))
def test_each_request_is_taken_once_in_order(jobs, turns):
    shared = RequestWriter().share()
    for requests in jobs:
        shared.write(requests)
        readers = [RequestReader(*shared.descriptors()) for _ in range(3)]
        taken = [readers[turn].take() for turn in turns]
        while (request := readers[0].take()) is not None:
            taken.append(request)
        assert [request for request in taken if request is not None] == requests
        for reader in readers:
            assert reader.take() is None
            reader.close()
    shared.release()


def test_many_take_at_once_and_none_is_taken_twice(shared):
    shared.write(Request(number, b"%d" % number) for number in range(20_000))

    def take_all(_):
        reader = RequestReader(*shared.descriptors())
        taken = []
        while (request := reader.take()) is not None:
            assert request.body == b"%d" % request.number
            taken.append(request.number)
        reader.close()
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(take_all, range(4)))
    assert all(some == sorted(some) for some in taken)
    assert sorted(itertools.chain(*taken)) == list(range(20_000))


def outcome(index: int, **changes) -> Outcome:
    values = {
        "index": index,
        "slot": None,
        "due_ns": index,
        "sent_ns": index,
        "first_byte_ns": None,
        "ended_ns": index,
        "http_status": 200,
        "stream": StreamRecord(
            RequestStatus.OK, output_tok=index, event_ns=(index,), event_tok=(index,), text="é"
        ),
    }
    return Outcome(**(values | changes))


@settings(deadline=None, max_examples=30)
@given(count=st.integers(0, 5), cut=st.integers(0, 400))
def test_what_a_killed_worker_had_written_stands(count, cut):
    file = OutcomeFile()
    frames = [framed(outcome(index)) for index in range(count)]
    data = b"".join(frames)[:cut]
    os.write(file.descriptor, data)
    whole = 0
    while sum(map(len, frames[: whole + 1])) <= len(data) and whole < count:
        whole += 1
    assert [to_outcome(frame) for frame in file.frames()] == [outcome(i) for i in range(whole)]
    file.clear()
    assert list(file.frames()) == []
    file.close()


class Told:
    """A worker that has told these outcomes."""

    is_alive = True

    def __init__(self, outcomes):
        self._outcomes = outcomes

    def outcomes(self):
        return iter(self._outcomes)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_the_merged_records_do_not_depend_on_who_told_what_when(data):
    cell = make_cell(requests=12, warmup_requests=4)
    planned = plan_requests(cell, model_name="m")
    told = [outcome(index) for index in range(14)]  # two were never sent
    order = data.draw(st.permutations(told))
    owners = data.draw(st.lists(st.integers(0, 2), min_size=14, max_size=14))
    shares = [[o for o, who in zip(order, owners, strict=True) if who == n] for n in range(3)]

    def merged(workers):
        client = LoadClient("http://x", api_key=None, workers=workers)
        return client._samples(cell, planned)

    one = merged([Told(told)])
    three = merged([Told(share) for share in shares])
    assert three[:14] == one[:14]
    assert [s.index for s in three] == list(range(16))
    assert {s.status for s in three[14:]} == {RequestStatus.CANCELLED}
    assert {s.sent_ns for s in three[14:]} == {None}


def test_a_full_disk_for_requests_is_told_and_is_no_traceback(monkeypatch):
    writer = RequestWriter().share()

    def full(_requests):
        raise OSError(27, "File too large")

    monkeypatch.setattr(writer, "_write", full)
    with pytest.raises(DiskError, match="File too large"):
        writer.write([])
    writer.release()
