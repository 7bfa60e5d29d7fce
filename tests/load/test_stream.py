from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import chat_chunk, chat_events, sse

from bench.load.stream import StreamEnd, assemble
from bench.model import RequestStatus

RECORDINGS = Path(__file__).parents[1] / "lab" / "recordings"
FINISH = sse(chat_chunk(finish="stop"))
DONE = sse("[DONE]")
CLEAN = StreamEnd()


def record(*pieces: bytes, end: StreamEnd = CLEAN, keep_text: bool = True):
    """Each piece arrives 10 ns after the one before it, the first at 10."""
    reads = [(10 * place, piece) for place, piece in enumerate(pieces, start=1)]
    return assemble(reads, end, keep_text=keep_text)


def generate(text: str, tok: int | None, *, ids: list[int] | None = None, finish=None, **meta):
    info = {"finish_reason": finish, "prompt_tokens": 4, **meta}
    if tok is not None:
        info["completion_tokens"] = tok
    payload = {"text": text, "meta_info": info}
    return sse(payload if ids is None else payload | {"output_ids": ids})


# ---------------------------------------------------------------------------- recorded streams

ASKED_TOK = {"chat": 24, "chat-code": 48, "completions": 24, "generate": 48}
LAUNCHES = ("baseline", "eagle3-3-1-4", "eagle3-incremental")
RECORDED = [RECORDINGS / launch / f"{name}.sse" for launch in LAUNCHES for name in ASKED_TOK]
REFUSALS = [
    RECORDINGS / launch / f"{name}.sse"
    for launch in LAUNCHES
    for name in ("too-long", "too-long-chat")
]


def recorded(path):
    """One read an event."""
    return record(*(event + b"\n\n" for event in path.read_bytes().split(b"\n\n") if event))


def place(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("path", RECORDED, ids=place)
def test_recordings_of_the_real_server(path):
    got = recorded(path)
    asked_tok = ASKED_TOK[path.stem]
    assert got.status is RequestStatus.OK
    assert got.finish_reason == "length"
    assert got.output_tok == asked_tok
    assert got.event_tok[-1] == asked_tok
    assert got.tokens_before_first_event is False
    assert got.reasoning_tok == 0
    assert got.prompt_tok in {11, 21, 34}
    if path.parent.name == "baseline":
        assert got.event_tok == tuple(range(1, asked_tok + 1))
        assert got.spec is None
    else:
        assert sum(got.spec.correct_drafts_histogram) == got.spec.verify_ct
        steps = enumerate(got.spec.correct_drafts_histogram)
        assert sum(k * count for k, count in steps) == got.spec.num_correct_drafts
        assert got.spec.num_proposed_drafts == 3 * got.spec.verify_ct
        assert got.output_tok <= got.spec.num_correct_drafts + got.spec.verify_ct + 1
        assert len(got.event_ns) == got.spec.verify_ct + 1
    if path.stem == "generate":
        assert got.cached_tok == 0
        assert got.num_retractions == 0
        assert got.queue_ns > 0


@pytest.mark.parametrize("launch", LAUNCHES)
def test_recorded_streams_say_what_the_recorded_whole_answers_do(launch):
    def whole(name):
        return json.loads((RECORDINGS / launch / f"{name}.json").read_bytes())

    def streamed(name):
        return recorded(RECORDINGS / launch / f"{name}.sse").text

    assert streamed("generate") == whole("generate")["text"]
    assert streamed("completions") == whole("completions")["choices"][0]["text"]
    # asked for more tokens than the stream
    assert whole("chat")["choices"][0]["message"]["content"].startswith(streamed("chat"))


@pytest.mark.parametrize("name", ASKED_TOK)
def test_recorded_launches_say_the_same_of_the_same_request(name):
    texts = {recorded(path).text for path in RECORDED if path.stem == name}
    assert len(texts) == 1
    assert texts.pop().strip()


def test_recorded_apis_say_the_same_of_the_same_prompt():
    folder = RECORDINGS / "eagle3-3-1-4"
    completions, generate = (
        recorded(folder / f"{name}.sse").text for name in ("completions", "generate")
    )
    assert generate.startswith(completions)


@pytest.mark.parametrize("path", REFUSALS, ids=place)
def test_recorded_refusals(path):
    got = recorded(path)
    assert got.status is RequestStatus.SERVER_ERROR_IN_STREAM
    assert "longer than the model's context length" in got.error_message


@settings(deadline=None, max_examples=20)
@given(st.sampled_from(RECORDED), st.lists(st.integers(0, 20000), max_size=30))
def test_a_record_depends_on_the_bytes_alone(path, cuts):
    data = path.read_bytes()
    edges = [0, *sorted(cut % len(data) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    whole = assemble([(5, data)], CLEAN, keep_text=True)
    cut = assemble([(5, piece) for piece in pieces], CLEAN, keep_text=True)
    whole.read_ct = cut.read_ct = 0
    assert cut == whole


# --------------------------------------------------------------------------------- token events


def test_role_and_finish_events_bear_no_token():
    got = record(*chat_events(3))
    assert (got.event_ns, got.event_tok) == ((20, 30, 40), (1, 2, 3))
    assert got.first_visible_ns == 20


def test_without_running_counts_text_tells():
    got = record(
        sse(chat_chunk("")),
        sse(chat_chunk("a")),
        sse(chat_chunk("b")),
        FINISH,
        sse({"choices": [], "usage": {"completion_tokens": 9, "prompt_tokens": 2}}),
        DONE,
    )
    assert (got.event_ns, got.event_tok, got.output_tok) == ((20, 30), None, 9)


def test_a_running_count_tells_tokens_that_have_no_text_yet():
    half_a_character = sse(chat_chunk("", tok=2))
    got = record(
        sse(chat_chunk("a", tok=1)), half_a_character, sse(chat_chunk("é", tok=3)), FINISH, DONE
    )
    assert (got.event_ns, got.event_tok) == ((10, 20, 30), (1, 2, 3))


def test_an_event_that_only_repeats_the_count_is_none():
    got = record(
        sse(chat_chunk("a", tok=2)),
        sse(
            {"choices": [{"delta": {"reasoning_content": "b"}}], "usage": {"completion_tokens": 4}}
        ),
        sse(chat_chunk("c", tok=4)),  # the same step's visible part
        FINISH,
        DONE,
    )
    assert (got.event_ns, got.event_tok) == ((10, 20), (2, 4))
    assert (got.text, got.reasoning_text) == ("ac", "b")


def test_a_last_token_without_an_event_of_its_own_arrived_with_the_finish_reason():
    usage = sse({"choices": [], "usage": {"completion_tokens": 3, "prompt_tokens": 1}})
    got = record(sse(chat_chunk("a", tok=1)), sse(chat_chunk("b", tok=2)), FINISH, usage, DONE)
    assert (got.event_ns, got.event_tok, got.output_tok) == ((10, 20, 30), (1, 2, 3), 3)


def test_a_count_that_misses_on_one_event_with_text_is_no_running_count():
    got = record(sse(chat_chunk("a")), sse(chat_chunk("b", finish="stop", tok=7)), DONE)
    assert (got.event_ns, got.event_tok, got.output_tok) == ((10, 20), None, 7)


def test_a_total_on_the_textless_finish_event_is_no_running_count():
    got = record(sse(chat_chunk("a")), sse(chat_chunk(finish="stop", tok=7)), DONE)
    assert (got.event_ns, got.event_tok, got.output_tok) == ((10,), None, 7)


def test_reasoning_counts_as_generated_but_not_as_visible():
    def reasoning(key, text):
        return sse({"choices": [{"delta": {key: text}}]})

    got = record(
        reasoning("reasoning_content", "let me "),
        reasoning("reasoning", "see"),
        sse(chat_chunk("yes", finish="stop")),
        DONE,
    )
    assert got.event_ns == (10, 20, 30)
    assert got.first_visible_ns == 30
    assert (got.text, got.reasoning_text) == ("yes", "let me see")


def test_tool_calls_are_generated_tokens():
    call = {"index": 0, "function": {"name": None, "arguments": '{"a":'}}
    got = record(
        sse({"choices": [{"delta": {"content": None, "tool_calls": [call]}}]}),
        sse(chat_chunk(finish="tool_calls")),
        sse({"choices": [], "usage": {"completion_tokens": 11}}),
        DONE,
    )
    assert got.status is RequestStatus.OK
    assert (got.event_ns, got.first_visible_ns, got.text) == ((10,), 10, "")


def test_completions_with_text_and_finish_in_one_event():
    def piece(text, tok, finish=None):
        choice = {"index": 0, "text": text, "finish_reason": finish}
        return sse({"choices": [choice], "usage": {"completion_tokens": tok}})

    got = record(piece("a", 1), piece("b", 3, "stop"), DONE)
    assert (got.text, got.event_tok, got.status) == ("ab", (1, 3), RequestStatus.OK)


# -------------------------------------------------------------------------------------- /generate

LENGTH = {"type": "length", "length": 6}


def test_generate_sends_all_text_each_time():
    got = record(
        generate("One", 1, ids=[7]),
        generate("One two", 3, ids=[7, 8, 9]),
        generate("One two three", 6, ids=[1, 2, 3, 4, 5, 6], finish=LENGTH, spec_verify_ct=2),
        DONE,
    )
    assert (got.text, got.event_tok) == ("One two three", (1, 3, 6))
    assert got.finish_reason == "length"


def test_generate_in_increments_is_told_by_its_ids():
    got = record(
        generate("ha", 1, ids=[7]),
        generate("ha", 2, ids=[7]),
        generate("ha", 4, ids=[7, 8], finish=LENGTH),
        DONE,
    )
    assert (got.text, got.event_tok) == ("hahaha", (1, 2, 4))


def test_generate_in_increments_without_ids_is_told_by_its_texts():
    got = record(generate("One", 1), generate(" two", 3), generate("", 4, finish=LENGTH), DONE)
    assert (got.text, got.event_tok) == ("One two", (1, 3, 4))


def test_generate_whose_last_total_lost_a_stop_string():
    got = record(
        generate("One", 1), generate("One two", 3), generate("One", 4, finish=LENGTH), DONE
    )
    assert got.text == "One"


def test_generate_aborted_by_the_scheduler():
    abort = {"type": "abort", "message": "The request queue is full.", "status_code": 503}
    got = record(generate("", 0, finish=abort), DONE)
    assert got.status is RequestStatus.ABORTED
    assert got.error_message == "The request queue is full."


@pytest.mark.parametrize(
    "names",
    [
        ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram"),
        ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram"),
    ],
)
def test_spec_counters_under_their_names_of_all_releases(names):
    counts = dict(zip(names, (5, 9, [1, 0, 1, 1]), strict=True))
    got = record(generate("a b", 9, finish=LENGTH, spec_verify_ct=3, **counts), DONE).spec
    assert got.verify_ct == 3
    assert got.num_correct_drafts == 5
    assert got.num_proposed_drafts == 9
    assert got.correct_drafts_histogram == (1, 0, 1, 1)


def test_zero_verify_steps_mean_not_told():
    zeros = {
        "spec_verify_ct": 0,
        "spec_num_correct_drafts": 0,
        "spec_correct_drafts_histogram": [],
    }
    chunk = {"choices": [], "usage": None, "sglext": {"spec_tokens_details": zeros}}
    assert record(sse(chat_chunk("a")), FINISH, sse(chunk), DONE).spec is None


def test_correct_drafts_of_zero_are_kept_where_the_histogram_says_so():
    details = {
        "spec_verify_ct": 4,
        "spec_num_correct_drafts": 0,
        "spec_num_proposed_drafts": 12,
        "spec_correct_drafts_histogram": [4],
    }
    chunk = {"choices": [], "sglext": {"spec_tokens_details": [details]}}
    got = record(sse(chat_chunk("a")), FINISH, sse(chunk), DONE)
    assert (got.spec.verify_ct, got.spec.num_correct_drafts) == (4, 0)


# ------------------------------------------------------------------------------------------ status


@pytest.mark.parametrize(
    ("pieces", "status", "said"),
    [
        ([sse(chat_chunk("a")), FINISH, DONE], RequestStatus.OK, None),
        ([sse(chat_chunk("a")), FINISH], RequestStatus.INCOMPLETE_STREAM, "[DONE]"),
        ([sse(chat_chunk("a")), DONE], RequestStatus.INCOMPLETE_STREAM, "finish reason"),
        ([sse(chat_chunk("a"))], RequestStatus.INCOMPLETE_STREAM, "[DONE] and without finish"),
        ([], RequestStatus.INCOMPLETE_STREAM, "[DONE]"),
        ([sse(chat_chunk("")), FINISH, DONE], RequestStatus.EMPTY_OUTPUT, "without output"),
        ([sse({"choices": [], "usage": None}), FINISH, DONE], RequestStatus.EMPTY_OUTPUT, ""),
        ([sse(chat_chunk("a")), b"data: {oops\n\n", DONE], RequestStatus.MALFORMED_STREAM, "oops"),
        ([sse({"hello": 1}), DONE], RequestStatus.MALFORMED_STREAM, "hello"),
        ([b"<html>no</html>"], RequestStatus.MALFORMED_STREAM, "no event stream"),
        ([sse(chat_chunk("a", finish="abort")), DONE], RequestStatus.ABORTED, "abort"),
        ([sse(chat_chunk("a")), b'data: {"choices": [{"del'], RequestStatus.INCOMPLETE_STREAM, ""),
    ],
)  # fmt: skip
def test_status(pieces, status, said):
    got = record(*pieces)
    assert got.status is status
    assert got.error_message is None if said is None else said in got.error_message
    assert (got.facts is None) == (status is not RequestStatus.OK)


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "died", "type": "InternalServerError", "code": 500}},
        {"error": {"error": {"message": "died"}}},
        {"error": "died"},
        {"object": "error", "message": "died", "code": 500},
        {"type": "error", "error": {"type": "overloaded", "message": "died"}},
    ],
)
@pytest.mark.parametrize("before", [[], [sse(chat_chunk("par")), sse(chat_chunk("tial"))]])
def test_an_error_inside_a_stream_of_http_200(error, before):
    got = record(*before, sse(error), DONE)
    assert got.status is RequestStatus.SERVER_ERROR_IN_STREAM
    assert got.error_message == "died"
    assert got.text == ("partial" if before else "")


def test_a_named_error_event_with_any_data():
    got = record(sse(chat_chunk("a")), b"event: error\ndata: backend gone\n\n", FINISH, DONE)
    assert (got.status, got.error_message) == (
        RequestStatus.SERVER_ERROR_IN_STREAM,
        "backend gone",
    )


def test_an_error_body_in_place_of_a_stream():
    got = record(b'{"error": {"mess', b'age": "no such model"}}')
    assert got.status is RequestStatus.SERVER_ERROR_IN_STREAM
    assert got.error_message == "no such model"


def test_a_transport_failure_after_the_protocol_end_is_none():
    cut = StreamEnd(status=RequestStatus.DISCONNECTED, message="reset")
    assert record(sse(chat_chunk("a")), FINISH, DONE, end=cut).status is RequestStatus.OK
    got = record(sse(chat_chunk("a")), end=cut)
    assert (got.status, got.error_message) == (RequestStatus.DISCONNECTED, "reset")


def test_an_error_event_outranks_the_cut_that_follows_it():
    cut = StreamEnd(status=RequestStatus.DISCONNECTED, message="reset")
    assert record(sse({"error": "died"}), end=cut).error_message == "died"


def test_done_without_its_last_line_end_counts():
    assert record(sse(chat_chunk("a")), FINISH, b"data: [DONE]").status is RequestStatus.OK


def test_what_follows_done_is_ignored():
    got = record(sse(chat_chunk("a")), FINISH, DONE, sse({"error": "late"}))
    assert (got.status, got.text) == (RequestStatus.OK, "a")


@pytest.mark.parametrize("place", ["prompt_tokens", "completion_tokens"])
@pytest.mark.parametrize("count", [2**63, 2**70, -(2**64)])
def test_a_count_that_no_record_could_hold_is_none(place, count):
    event = chat_chunk("a") | {"usage": {"prompt_tokens": 5, "completion_tokens": 1, place: count}}
    record = assemble([(1, sse(event)), (2, sse("[DONE]"))], StreamEnd())
    assert record.status is RequestStatus.MALFORMED_STREAM
    assert place in record.error_message
    assert record.output_tok is None


def test_messages_are_cut():
    assert len(record(sse({"error": "x" * 9000}), DONE).error_message) == 4000


# ------------------------------------------------------------------------------------------ counts


def test_no_count_is_none_and_brings_the_text_for_counting():
    got = record(sse(chat_chunk("Hel")), sse(chat_chunk("lo")), FINISH, DONE, keep_text=False)
    assert (got.output_tok, got.text, got.reasoning_text) == (None, "Hello", "")


def test_a_count_of_zero_beside_text_is_no_count():
    usage = sse({"choices": [], "usage": {"completion_tokens": 0}})
    assert record(sse(chat_chunk("a")), FINISH, usage, DONE).output_tok is None


def test_text_is_not_told_when_nobody_asked():
    got = record(*chat_events(3), keep_text=False)
    assert got.text is None
    assert got.facts.sha256 == hashlib.sha256(b"t0 t1 t2 ").hexdigest()


def test_cached_tokens_from_usage_or_from_the_extension():
    usage = {"completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 3}}
    assert record(sse({"choices": [], "usage": usage})).cached_tok == 3
    details = {"cached_tokens_details": {"device": 8, "host": 1, "storage_backend": "x"}}
    assert record(sse({"choices": [], "sglext": details})).cached_tok == 9


# ----------------------------------------------------------------------------------- hidden tokens


def ended(output_tok: int, reasoning_tok: int | None, *before: bytes):
    usage = {"completion_tokens": output_tok, "reasoning_tokens": reasoning_tok}
    return record(*before, FINISH, sse({"choices": [], "usage": usage}), DONE)


ANSWER = [sse(chat_chunk("The answer is ")), sse(chat_chunk("42, of course."))]
REASONING = sse({"choices": [{"delta": {"reasoning_content": "Six times seven is forty-two."}}]})


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (ended(408, 400, *ANSWER), True),  # reasoning that was counted but never sent
        (ended(408, None, *ANSWER), True),  # more tokens than bytes of text
        (ended(16, 8, REASONING, *ANSWER), False),
        (ended(408, 400, REASONING, *ANSWER), True),  # a summary of it was sent
        (ended(8, 0, *ANSWER), False),
        (ended(8, None, *ANSWER), None),  # cannot be told
        (
            record(sse(chat_chunk("No", tok=401)), sse(chat_chunk(".", tok=402)), FINISH, DONE),
            True,
        ),
        (
            record(sse(chat_chunk("No, it", tok=3)), sse(chat_chunk("s", tok=4)), FINISH, DONE),
            False,
        ),
        (record(FINISH, DONE), None),
    ],
)
def test_tokens_before_the_first_event(got, expected):
    assert got.tokens_before_first_event is expected


# ------------------------------------------------------------------------------------- text facts


def test_block_hashes_tell_where_two_texts_part():
    def facts(text):
        return record(sse(chat_chunk(text)), FINISH, DONE).facts

    same, other = "é" * 100, "é" * 99 + "x"
    assert len(facts(same * 3).block_hashes) == 300 // 64
    assert facts(same).block_hashes == facts(other).block_hashes
    long, parted = facts(same * 3).block_hashes, facts(same + other + same).block_hashes
    assert [a == b for a, b in zip(long, parted, strict=True)] == [True, True, True, False]
    assert all(0 <= value < 2**63 for value in long)


def test_word_pairs_show_a_loop():
    facts = record(sse(chat_chunk("go on " * 50)), FINISH, DONE).facts
    assert (facts.bigram_ct, facts.distinct_bigram_ct) == (99, 2)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=8), min_size=1, max_size=12), st.booleans())
def test_any_text_comes_back_whole(parts, ensure_ascii):
    def dump(chunk):
        return (
            b"data: "
            + json.dumps(chunk, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
            + b"\n\n"
        )

    encodable = [part.encode("utf-8", "replace").decode() for part in parts]
    got = record(*(dump(chat_chunk(part)) for part in encodable), FINISH, DONE)
    assert got.text == "".join(encodable)
