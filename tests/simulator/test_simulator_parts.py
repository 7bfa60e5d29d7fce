"""The simulator's pure parts."""

import asyncio
import json
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.physics import accept_len_tok, reach_of
from bench.simulator.http11 import Connection, Hooks
from bench.simulator.prefix_cache import BLOCK_TOK, PrefixCache, block_hashes
from bench.simulator.request import Acceptance
from bench.simulator.stats import Histogram
from bench.simulator.truth import Truth
from bench.simulator.words import make_answer, prompt_seed

EOS = 163586
QUICK = settings(deadline=None, max_examples=50)


def answer(seed: int, cap: int = 300, **options):
    options = {"ignore_eos": False, "thinking": False, "eos_token_id": EOS} | options
    return make_answer(seed, cap_tok=cap, **options)


@QUICK
@given(st.integers(0, 2**64 - 1), st.lists(st.integers(1, 9), min_size=1, max_size=60))
def test_an_answer_is_the_same_however_it_is_cut(seed, pieces):
    whole = answer(seed)
    cuts = answer(seed)
    text, ids, at = "", [], 0
    for piece in pieces:
        end = min(at + piece, cuts.length_tok)
        text += cuts.text(at, end)
        ids += cuts.token_ids(at, end)
        at = end
    assert text == whole.text(0, at)
    assert ids == whole.token_ids(0, at)
    assert len(ids) == at


def test_answers_are_varied_and_mostly_reach_a_cap_of_256():
    answers = [answer(prompt_seed(str(at).encode(), None), cap=256) for at in range(400)]
    capped = [a for a in answers if not a.natural]
    assert len(capped) > 360
    assert all(a.length_tok == 256 for a in capped)
    natural = [a for a in answers if a.natural]
    assert all(a.token_ids(0, a.length_tok)[-1] == EOS for a in natural)
    words = answers[0].text(0, 250).split()
    assert len(set(pairwise(words))) > 0.95 * len(words)
    assert all(answer(a, cap=256, ignore_eos=True).length_tok == 256 for a in range(50))


def test_thinking_comes_first_and_its_end_is_silent():
    loud = answer(3, cap=5000, thinking=True)
    assert 1 < loud.thinking_tok < loud.length_tok
    boundary = loud.thinking_tok
    assert loud.text(boundary - 1, boundary) == ""
    assert loud.text(boundary - 2, boundary - 1) != ""


@pytest.mark.parametrize("reach", [(0.36, 0.14, 0.07), (0.68, 0.44, 0.29), (1.0, 0.0), (0.0,)])
def test_accepted_drafts_follow_the_card(reach):
    drawn = Acceptance(lambda _: reach, seed=7)
    draws = [drawn.draw() for _ in range(3200)]
    for k, chance in enumerate(reach, start=1):
        assert sum(draw >= k for draw in draws) / len(draws) == pytest.approx(chance, abs=0.01)
    mean = 1 + sum(draws) / len(draws)
    assert mean == pytest.approx(accept_len_tok(reach, len(reach)), abs=0.02)
    assert max(draws) <= len(reach_of(reach, len(reach)))


def test_acceptance_depends_on_its_seed_only():
    one, same, other = (Acceptance(lambda _: (0.6, 0.3), seed=seed) for seed in (1, 1, 2))
    draws = [[source.draw() for _ in range(64)] for source in (one, same, other)]
    assert draws[0] == draws[1] != draws[2]


@QUICK
@given(st.binary(max_size=600), st.binary(max_size=600), st.binary(max_size=200))
def test_a_common_prefix_is_found_and_no_more(prefix, one, other):
    def blocks(prompt: bytes) -> list[int]:
        return block_hashes(prompt, max(1, -(-len(prompt) // 4)))

    cache = PrefixCache()
    cache.lock(blocks(prefix + one))
    found = cache.match(blocks(prefix + other))
    same = 0
    for a, b in zip(prefix + one, prefix + other, strict=False):
        if a != b:
            break
        same += 1
    assert found <= same // (4 * BLOCK_TOK)
    assert found >= min(same, len(prefix + one) - 4, len(prefix + other) - 4) // (4 * BLOCK_TOK)


def test_locked_blocks_stay_and_the_end_of_a_prompt_goes_first():
    cache = PrefixCache()
    cache.lock([1, 2, 3])
    cache.lock([1, 2, 9])
    cache.unlock([1, 2, 3])
    assert (cache.locked_tok, cache.evictable_tok) == (3 * BLOCK_TOK, BLOCK_TOK)
    cache.shrink_to(0)
    assert cache.match([1, 2, 3]) == 2
    cache.unlock([1, 2, 9])
    cache.shrink_to(2 * BLOCK_TOK)
    assert cache.match([1, 2, 9]) == 2
    cache.clear()
    assert cache.match([1, 2, 9]) == 0


def test_a_histogram_counts_at_or_below_its_bounds():
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.counts == [2, 2, 1]
    assert histogram.sum == 14.0


# ------------------------------------------------------------------------------------------ HTTP


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = b""
        self.closed = False

    def write(self, data) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed


def connection_with(seen: list) -> tuple[Connection, Wire]:
    def handle(exchange) -> None:
        seen.append((exchange.request.method, exchange.request.path, exchange.request.body))
        exchange.respond(200, json.dumps(len(seen)).encode())

    hooks = Hooks(handle=handle, responding=lambda *_: None, ended=lambda *_: None)
    connection, wire = Connection(hooks, set()), Wire()
    connection.connection_made(wire)
    return connection, wire


@QUICK
@given(st.data())
def test_requests_are_read_whatever_way_they_are_split(data):
    async def exchange() -> list:
        sent = b"POST /a?x=1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"
        sent += b"GET /b HTTP/1.1\r\nhost: me\r\n\r\n"
        seen: list = []
        connection, _ = connection_with(seen)
        while sent:
            size = data.draw(st.integers(1, len(sent)))
            connection.data_received(sent[:size])
            sent = sent[size:]
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return seen

    assert asyncio.run(exchange()) == [("POST", "/a", b"hello"), ("GET", "/b", b"")]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /a HTTP/2\r\n\r\n", 400),
        (b"GET /a HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST /a HTTP/1.1\r\ncontent-length: many\r\n\r\n", 400),
        (b"POST /a HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n", 413),
        (b"POST /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", 411),
        (b"x" * 70_000, 413),
    ],
)
def test_what_is_no_request_ends_the_connection(sent, status):
    seen: list = []
    connection, wire = connection_with(seen)
    connection.data_received(sent)
    assert wire.written.startswith(f"HTTP/1.1 {status} ".encode())
    assert wire.closed
    assert seen == []


def test_connection_close_is_honoured():
    connection, wire = connection_with([])
    connection.data_received(b"GET / HTTP/1.0\r\n\r\n")
    assert wire.written.endswith(b"\r\n\r\n1")
    assert wire.closed


def test_a_full_disk_ends_the_truth_and_not_the_server(capsys):
    truth = Truth(SimpleNamespace(truth_path="/dev/full"))
    truth.server({"version": "1"})
    truth.server({"version": "2"})
    said = capsys.readouterr().out
    assert said == "simulator: the truth file ends here: No space left on device\n"


def test_a_disk_that_takes_a_part_is_given_the_rest(tmp_path):
    truth = Truth(SimpleNamespace(truth_path=str(tmp_path / "truth")))

    class Slow:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            return self.file.write(data[:7])

    truth._file = Slow(truth._file)
    truth.server({"version": "1"})
    assert json.loads((tmp_path / "truth").read_text()) == {"kind": "server", "version": "1"}
