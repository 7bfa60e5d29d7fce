from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.model import Api, Sampling, Workload
from bench.sglang.wire import PATHS, WireError, decode_chunk, error_in_body, request_body


def body(api: Api, **changes) -> dict:
    values = {
        "name": "w",
        "api": api,
        "dataset": "generated",
        "max_output_tok": 64,
        "sampling": Sampling(temperature=0.6, top_p=0.9, top_k=20, min_p=0.05),
    }
    encoded = request_body(
        Workload(**(values | changes)),
        model="m",
        messages=(("system", "Be brief."), ("user", "Grüße")),
        text="Grüße",
        max_output_tok=48,
        seed=123,
    )
    return json.loads(encoded)


SAMPLING = {
    "temperature": 0.6,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.05,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "ignore_eos": False,
}


@pytest.mark.parametrize("api", [Api.CHAT, Api.COMPLETIONS])
def test_openai_bodies_state_sampling_and_ask_for_every_count(api):
    got = body(api)
    assert got.items() >= SAMPLING.items()
    assert got["stream"] is True
    assert got["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert got["return_spec_tokens_details"] is True
    assert (got["model"], got["seed"]) == ("m", 123)


def test_chat_body():
    got = body(Api.CHAT, chat_template_kwargs=(("thinking", False),), ignore_eos=True)
    assert got["messages"][1] == {"role": "user", "content": "Grüße"}
    assert got["max_completion_tokens"] == 48
    assert got["chat_template_kwargs"] == {"thinking": False}
    assert got["ignore_eos"] is True
    assert "prompt" not in got


def test_completions_body():
    got = body(Api.COMPLETIONS, chat_template_kwargs=(("thinking", False),))
    assert (got["prompt"], got["max_tokens"]) == ("Grüße", 48)
    assert not {"messages", "chat_template_kwargs"} & set(got)


def test_generate_body():
    got = body(Api.GENERATE)
    parameters = got.pop("sampling_params")
    assert got == {"text": "Grüße", "stream": True}
    assert parameters == SAMPLING | {"max_new_tokens": 48, "sampling_seed": 123}


def test_every_api_has_a_path_that_keeps_a_prefix():
    assert set(PATHS) == set(Api)
    assert not any(path.startswith("/") for path in PATHS.values())


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"null", b'"x"', b'{"choices": 3}', b"{}"])
def test_what_no_api_sends_is_refused(data):
    with pytest.raises(WireError):
        decode_chunk(data)


def test_unknown_keys_and_nulls_are_read_over():
    chunk = decode_chunk(
        b'{"new": [1], "usage": null, "choices": [{"index": 0, "logprobs": null, '
        b'"delta": {"content": null, "reasoning_content": null, "audio": {}}}]}'
    )
    assert chunk.has_output_place
    assert (chunk.text, chunk.reasoning, chunk.output_tok) == ("", "", None)


@pytest.mark.parametrize(
    ("ids", "count"), [("[]", 0), ("[7]", 1), ("[7, 8,9]", 3), ("null", None), ("3", None)]
)
def test_ids_are_counted_without_being_read(ids, count):
    data = f'{{"text": "x", "output_ids": {ids}, "meta_info": {{"completion_tokens": 3}}}}'
    assert decode_chunk(data.encode()).output_id_ct == count


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": {"message": "no"}}', "no"),
        ('{"detail": "Not Found"}', "Not Found"),
        ('{"detail": [{"loc": ["body"]}]}', '[{"loc":["body"]}]'),
        ('{"fine": 1}', None),
        ("<html>", None),
    ],
)
def test_error_bodies(text, message):
    assert error_in_body(text.encode()) == message


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 1_000_000,
        b'{"choices":' * 100_000,
        b'{"error":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"error": NaN, "a":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001,
    ],
)
def test_data_nested_without_end_is_none_of_an_api(data):
    with pytest.raises(WireError):
        decode_chunk(data)
    assert error_in_body(data) is None


@pytest.mark.parametrize("depth", [1, 5, 9, 100, 900])
@pytest.mark.parametrize("key", ["message", "error", "type"])
def test_an_error_in_errors_is_told(depth, key):
    data = '{"error":' + f'{{"{key}":' * depth + '"no"' + "}" * (depth + 1)
    try:
        told = error_in_body(data.encode())
    except RecursionError:
        pytest.fail("a traceback")
    assert told is None or "no" in told


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)
names = st.sampled_from(
    ["choices", "usage", "sglext", "text", "output_ids", "meta_info", "error", "object", "detail"]
)


@given(st.dictionaries(names | st.text(max_size=4), json_values, max_size=4) | json_values)
@settings(deadline=None, max_examples=100)
def test_any_json_is_a_chunk_or_none(value):
    data = json.dumps(value).encode()
    error_in_body(data)
    with contextlib.suppress(WireError):
        decode_chunk(data)
