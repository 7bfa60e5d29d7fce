"""The simulator's surface against recordings of the real SGLang (tests/lab/recordings)."""

import json
import re
from itertools import chain, pairwise
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

RECORDINGS = Path(__file__).parents[1] / "lab" / "recordings"
PROMPT = "def join(path, *parts):\n"
OPENAI = {"model": "tiny", "temperature": 0, "return_spec_tokens_details": True}
STREAM = {
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
}
CHAT = {"messages": [{"role": "user", "content": "Write a codec that reads a stream."}]}


def recorded(arm: str, name: str) -> str:
    return (RECORDINGS / arm / name).read_text()


def recorded_events(arm: str, name: str) -> list:
    *events, done = recorded(arm, name).rstrip("\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


def kind_of(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "int", float: "float", str: "str", list: "list", dict: "dict"}[type(value)]


def differences(real: object, ours: object, at: str = "") -> list[str]:
    """Keys that one side lacks, and values of another type; null may stand for anything."""
    if real is None or ours is None:
        return []
    if kind_of(real) != kind_of(ours):
        return [f"{at}: {kind_of(real)} became {kind_of(ours)}"]
    found = []
    if isinstance(real, dict):
        found += [f"{at}.{key} is missing" for key in real.keys() - ours.keys()]
        found += [f"{at}.{key} is invented" for key in ours.keys() - real.keys()]
        for key in real.keys() & ours.keys():
            found += differences(real[key], ours[key], f"{at}.{key}")
    elif isinstance(real, list) and real and ours:
        found += differences(real[0], ours[0], f"{at}[]")
    return found


def test_differences_sees_what_it_should():
    real = {"a": 1, "b": [{"c": "x"}], "d": None}
    assert differences(real, {"a": 2, "b": [{"c": "y"}], "d": 3}) == []
    assert sorted(differences(real, {"a": 1.0, "b": [{}], "d": None, "e": 1})) == [
        ".a: int became float",
        ".b[].c is missing",
        ".e is invented",
    ]


# ---------------------------------------------------------------------------------------- streams


def chat_kind(event: dict) -> str:
    """What an event of a chat or completions stream is for."""
    if not event["choices"]:
        return "sglext" if "sglext" in event else "usage"
    choice = event["choices"][0]
    delta = choice.get("delta", {"content": choice.get("text")})
    if "role" in delta:
        return "role"
    return "content" if "content" in delta else "finish"


def order(events: list) -> list[str]:
    """The kinds of events in order, repeats once."""
    kinds = [chat_kind(event) for event in events]
    return [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]


@pytest.mark.parametrize(
    ("name", "path", "prompt"),
    [
        ("chat.sse", "/v1/chat/completions", CHAT),
        ("completions.sse", "/v1/completions", {"prompt": PROMPT}),
    ],
)
def test_openai_streams_have_the_recorded_events(arm, name, path, prompt):
    recording, server = arm
    answer = server.ask(path, {**OPENAI, **STREAM, **prompt, "max_tokens": 24, "ignore_eos": True})
    real, ours = recorded_events(recording, name), answer.events()
    assert order(ours) == order(real)
    for kind in set(order(real)):
        one_real = [event for event in real if chat_kind(event) == kind][-1]
        one_ours = [event for event in ours if chat_kind(event) == kind][-1]
        assert differences(one_real, one_ours) == [], kind
    counts = [event["usage"]["completion_tokens"] for event in ours if event.get("usage")]
    assert counts == sorted(counts)
    assert counts[-1] == 24


def layout(value: object) -> object:
    """The keys of an event in their order; what a list or a null holds is left out."""
    if isinstance(value, dict):
        return [(key, layout(inner)) for key, inner in value.items()]
    return [layout(value[0])] if isinstance(value, list) and value else None


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        ("chat.sse", "/v1/chat/completions", {**OPENAI, **STREAM, **CHAT, "max_tokens": 24}),
        (
            "completions.sse",
            "/v1/completions",
            {**OPENAI, **STREAM, "prompt": PROMPT, "max_tokens": 24},
        ),
        (
            "generate.sse",
            "/generate",
            {"text": PROMPT, "stream": True, "sampling_params": {"max_new_tokens": 48}},
        ),
    ],
)
def test_streams_are_written_like_the_recorded_ones(arm, name, path, body):
    recording, server = arm
    ours = server.ask(path, body).body.decode().split("\n\n")
    real = recorded(recording, name).split("\n\n")
    assert ours[-2:] == real[-2:] == ["data: [DONE]", ""]
    for events in (ours, real):
        for event in events[:-2]:
            prefix, data = event[:6], event[6:]
            assert prefix == "data: "
            assert data == json.dumps(json.loads(data), separators=(",", ":"), ensure_ascii=False)
    for at in (0, 1, 2, -4):
        assert layout(json.loads(ours[at][6:])) == layout(json.loads(real[at][6:])), at


def test_generate_streams_cumulatively_with_the_recorded_keys(arm):
    recording, server = arm
    ours = server.generate(PROMPT, 48, stream=True, sampling={"ignore_eos": True}).events()
    real = recorded_events(recording, "generate.sse")
    for at in (0, 1, -1):
        assert differences(real[at], ours[at]) == []
    assert layout(ours[-1]) == layout(real[-1])  # in its order too
    assert all(b["text"].startswith(a["text"]) for a, b in pairwise(ours))
    assert all(
        len(event["output_ids"]) == event["meta_info"]["completion_tokens"] for event in ours
    )
    assert ours[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": 48}


def test_generate_streams_increments_when_asked_to(launch, eagle3):
    with launch("--speculative-algorithm", "EAGLE3", "--incremental-streaming-output") as server:
        ours = server.generate(PROMPT, 48, stream=True).events()
    whole = eagle3.generate(PROMPT, 48).json()
    real = recorded_events("eagle3-incremental", "generate.sse")
    assert differences(real[-1], ours[-1]) == []
    assert "".join(event["text"] for event in ours) == whole["text"]
    assert [*chain.from_iterable(event["output_ids"] for event in ours)] == whole["output_ids"]
    assert [event["meta_info"]["completion_tokens"] for event in ours][-1] == 48


@pytest.mark.parametrize(
    ("name", "path", "body"),
    [
        (
            "generate.json",
            "/generate",
            {"text": PROMPT, "sampling_params": {"temperature": 0, "max_new_tokens": 48}},
        ),
        ("chat.json", "/v1/chat/completions", {**OPENAI, **CHAT, "max_tokens": 48}),
        ("completions.json", "/v1/completions", {**OPENAI, "prompt": PROMPT, "max_tokens": 24}),
    ],
)
def test_whole_answers_have_the_recorded_keys(arm, name, path, body):
    recording, server = arm
    answer = server.ask(path, body)
    assert answer.status == 200
    assert differences(json.loads(recorded(recording, name)), answer.json()) == []


@pytest.mark.parametrize(
    ("stem", "path", "body"),
    [
        ("too-long", "/generate", {"text": "word " * 1700}),
        (
            "too-long-chat",
            "/v1/chat/completions",
            {**OPENAI, "messages": [{"role": "user", "content": "word " * 1700}]},
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused_as_recorded(arm, stem, path, body, stream):
    recording, server = arm
    name = f"{stem}.sse" if stream else f"{stem}.json"
    status = f"{name}.status" if stream else f"{stem}.status"
    answer = server.ask(path, {**body, "stream": stream})
    assert answer.status == int(recorded(recording, status))

    def without_counts(text: str) -> str:
        return re.sub(r"\(\d+ tokens\)", "(N tokens)", text).rstrip("\n")

    assert without_counts(answer.body.decode()) == without_counts(recorded(recording, name))


# ------------------------------------------------------------------------------- about the server


def test_server_info_has_every_recorded_key(arm):
    recording, server = arm
    server.generate(PROMPT, 200, sampling={"ignore_eos": True})  # past the first log tick
    real, ours = (
        json.loads(recorded(recording, "server_info.json")),
        server.ask("/server_info").json(),
    )
    assert set(differences(real, ours)) <= {".simulated is invented"}
    for key in (
        "speculative_algorithm",
        "speculative_num_steps",
        "speculative_eagle_topk",
        "speculative_num_draft_tokens",
        "speculative_draft_model_path",
        "speculative_draft_model_revision",
        "context_length",
        "max_running_requests",
        "max_total_num_tokens",
        "max_req_input_len",
        "served_model_name",
        "version",
        "status",
    ):
        assert ours[key] == real[key], key
    assert ours["simulated"]["hardware"] == "rtx-pro-6000-x8"
    assert server.ask("/get_server_info").json().keys() == ours.keys()


def test_smaller_pages_have_the_recorded_keys(arm):
    recording, server = arm
    for name, path in (("model_info.json", "/model_info"), ("models.json", "/v1/models")):
        assert differences(json.loads(recorded(recording, name)), server.ask(path).json()) == []
    real = json.loads(recorded(recording, "loads.json"))
    found = differences(real, server.ask("/v1/loads?include=all").json())
    assert [line for line in found if not line.endswith("is missing")] == []
    assert {line.split(" ")[0] for line in found} <= {
        ".loads[].decode_moments",
        ".loads[].disaggregation",
        ".loads[].total_prefill_busy_us",
        ".loads[].speculative",  # there once a log tick has passed
    }


def test_flush_answers_as_recorded(arm):
    recording, server = arm
    server.wait_idle()
    answer = server.ask("/flush_cache", {})
    text = recorded(recording, "flush_cache.txt").removesuffix("\n200\n")
    assert answer.body.decode() == text


def test_metrics_are_a_part_of_the_recorded_ones(arm):
    recording, server = arm
    server.generate(PROMPT, 8, stream=True)
    real = {f.name: f for f in text_string_to_metric_families(recorded(recording, "metrics.prom"))}
    ours = {
        f.name: f for f in text_string_to_metric_families(server.ask("/metrics").body.decode())
    }
    marks = {name for name in ours if name.startswith("specdyno_simulated")}
    assert "specdyno_simulated" in marks
    # An abort happened in none of the recordings.
    invented = ours.keys() - real.keys() - marks - {"sglang:num_aborted_requests"}
    assert invented == set()
    for name in ours.keys() & real.keys():
        assert ours[name].type == real[name].type, name
        samples = {(s.name, tuple(sorted(s.labels))) for s in ours[name].samples}
        assert samples <= {(s.name, tuple(sorted(s.labels))) for s in real[name].samples}, name
    assert ("sglang:spec_verify_calls" in ours) == ("sglang:spec_verify_calls" in real)


def test_log_lines_have_the_recorded_shapes(arm):
    recording, server = arm
    server.generate(PROMPT, 200, sampling={"ignore_eos": True})

    def shape(line: str) -> str:
        line = line.replace("cpu graph", "cuda graph").replace("True", "False").replace(" TP0", "")
        return re.sub(r"\d+(\.\d+)*", "N", line)

    real = {shape(line) for line in recorded(recording, "server.log").splitlines()}
    ours = {shape(line) for line in server.log()}
    for beginning in ("[N-N-N N:N:N] Decode batch", "[N-N-N N:N:N] Prefill batch"):
        assert {line for line in ours if line.startswith(beginning)} == {
            line for line in real if line.startswith(beginning)
        }
    for part in ("fired up", "Uvicorn running", '"POST /generate HTTP/N" N OK'):
        assert {line for line in ours if part in line} == {line for line in real if part in line}


# ------------------------------------------------------------------------- marked as a simulation


@pytest.mark.parametrize("path", ["/health", "/server_info", "/metrics", "/v1/models", "/nowhere"])
def test_every_response_is_marked(plain, path):
    assert plain.ask(path).headers["x-specdyno-simulated"] == "1"


def test_streams_log_and_info_are_marked(plain):
    assert plain.generate("mark", 2, stream=True).headers["x-specdyno-simulated"] == "1"
    assert "SIMULATED" in plain.log()[0]
    simulated = plain.ask("/server_info").json()["simulated"]
    assert (simulated["by"], simulated["target"], simulated["speed"]) == (
        "specdyno",
        "kimi-k2.5",
        10,
    )
    assert simulated["not_modelled"] == ["sleep_on_idle"]
