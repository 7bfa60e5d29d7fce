"""What the simulated server does with requests, against its own truth file."""

import json
import signal
from itertools import pairwise

import pytest

from bench import clock
from bench.simulator.prefix_cache import BLOCK_TOK

CHAT = "/v1/chat/completions"


def test_speculation_changes_no_text(plain, eagle3):
    for prompt in ("one", "two", "three", "four"):
        texts = {
            server.generate(prompt, 40, stream=stream).events()[-1]["text"]
            if stream
            else server.generate(prompt, 40).json()["text"]
            for server in (plain, eagle3)
            for stream in (False, True)
        }
        assert len(texts) == 1
    assert plain.generate("one", 40).json()["text"] != plain.generate("two", 40).json()["text"]


def test_the_seed_matters_above_temperature_0_only(plain):
    def text(temperature: float, seed: int) -> str:
        sampling = {"temperature": temperature, "sampling_seed": seed}
        return plain.generate("seeded", 24, sampling=sampling).json()["text"]

    assert text(0, 1) == text(0, 2)
    assert text(0.7, 1) == text(0.7, 1) != text(0.7, 2)


def test_counters_of_a_request_hold_together(eagle3):
    answer = eagle3.generate("counters of this one", 150, sampling={"ignore_eos": True}).json()
    meta = answer["meta_info"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == meta["spec_verify_ct"]
    assert sum(k * count for k, count in enumerate(histogram)) == meta["spec_num_correct_drafts"]
    assert meta["spec_num_proposed_drafts"] == 3 * meta["spec_verify_ct"]
    made = meta["spec_num_correct_drafts"] + meta["spec_verify_ct"] + 1
    assert meta["completion_tokens"] == 150 <= made < 150 + 4
    assert meta["spec_accept_length"] == 150 / meta["spec_verify_ct"]

    (truth,) = [line for line in eagle3.truth("request") if line["rid"] == meta["id"]]
    assert truth["histogram"] == histogram
    assert truth["output_tok"] == 150
    assert truth["arrival_ns"] <= truth["forward_ns"] < truth["first_token_ns"]
    assert truth["first_token_ns"] <= truth["first_emitted_ns"] < truth["finish_emitted_ns"]


def test_steps_follow_one_another_and_carry_all_tokens(eagle3):
    eagle3.wait_idle()
    before = len(eagle3.truth("step"))
    requests = len(eagle3.truth("request"))
    for prompt in ("a", "b"):
        eagle3.generate(prompt, 60)
    steps = eagle3.truth("step")[before:]
    ended = eagle3.truth("request")[requests:]
    assert sum(step["output_tok"] for step in steps) == sum(r["output_tok"] for r in ended) == 120
    for step, following in pairwise(steps):
        assert step["start_ns"] < step["end_ns"] <= step["handled_ns"]
        if following["step"] == "decode":  # a schedule without gaps: late wake-ups do not add up
            assert following["start_ns"] == step["end_ns"]


def test_metrics_count_exactly(launch):
    with launch("--speculative-algorithm", "EAGLE3") as server:
        verify = 0
        for at in range(3):
            verify += server.generate(f"count {at}", 30).json()["meta_info"]["spec_verify_ct"]
        server.generate("streamed", 5, stream=True)
        server.wait_idle()
        metrics = server.metrics()
        truth = server.truth("request")

    def total(name: str, **labels: str) -> float:
        return sum(
            value
            for (found, pairs), value in metrics.items()
            if found == name and labels.items() <= dict(pairs).items()
        )

    assert total("sglang:generation_tokens_total", is_streaming="false") == 90
    assert total("sglang:generation_tokens_total", is_streaming="true") == 5
    assert total("sglang:num_requests_total") == 4
    assert total("sglang:prompt_tokens_total") == sum(line["prompt_tok"] for line in truth)
    assert total("sglang:spec_verify_calls_total") == sum(line["verify_ct"] for line in truth)
    assert total("sglang:spec_verify_calls_total") >= verify > 0
    assert total("sglang:time_to_first_token_seconds_count") == 4
    decoded = sum(line["correct_ct"] + line["verify_ct"] for line in truth)
    assert total("sglang:realtime_tokens_total", mode="decode") == decoded
    assert total("sglang:num_running_reqs") == 0


def test_a_prompt_seen_before_is_cached_but_for_its_end(plain):
    plain.wait_idle()
    prompt = "the same words again and again " * 20
    first = plain.generate(prompt, 2).json()["meta_info"]
    second = plain.generate(prompt, 2).json()["meta_info"]
    assert first["cached_tokens"] == 0
    assert first["prompt_tokens"] - BLOCK_TOK <= second["cached_tokens"] < first["prompt_tokens"]
    assert second["cached_tokens_details"] == {"device": second["cached_tokens"], "host": 0}
    plain.wait_idle()
    assert plain.generate(prompt, 2).json()["meta_info"]["cached_tokens"] == 0


def test_thinking_is_told_apart_by_the_reasoning_parser(launch):
    body = {"messages": [{"role": "user", "content": "think"}], "max_tokens": 1800, "stream": True}
    usage = {"stream_options": {"include_usage": True}}
    with launch("--reasoning-parser", "kimi_k2", "--speculative-algorithm", "EAGLE3") as server:
        loud = server.ask(CHAT, {**body, **usage}).events()
        quiet = server.ask(
            CHAT, {**body, **usage, "chat_template_kwargs": {"thinking": False}}
        ).events()
    deltas = [event["choices"][0]["delta"] for event in loud if event["choices"]]
    thought = [at for at, delta in enumerate(deltas) if delta.get("reasoning_content")]
    spoken = [at for at, delta in enumerate(deltas) if delta.get("content")]
    assert thought
    assert spoken == [] or max(thought) < min(spoken)
    assert loud[-1]["usage"]["reasoning_tokens"] > 0
    assert quiet[-1]["usage"]["reasoning_tokens"] == 0
    assert not any(
        event["choices"][0]["delta"].get("reasoning_content")
        for event in quiet
        if event["choices"]
    )


def start_long(server, rid: str):
    """A stream that will not end for a long time; its response once the first token is there."""
    connection = server.connect()
    sampling = {"max_new_tokens": 1500, "ignore_eos": True, "temperature": 0}
    body = {"text": "long " + rid, "rid": rid, "stream": True, "sampling_params": sampling}
    connection.request("POST", "/generate", json.dumps(body))
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    return connection, response


def last_event(response) -> dict:
    # What `start_long` read may have ended in the middle of an event's two line ends.
    *_, event, done = [line for line in response.read().split(b"\n") if line]
    assert done == b"data: [DONE]"
    return json.loads(event.removeprefix(b"data: "))


def test_flush_is_refused_while_busy_and_abort_ends_by_prefix(plain):
    streams = {rid: start_long(plain, rid) for rid in ("busy", "busy-2", "other")}
    assert plain.ask("/flush_cache").status == 400
    assert plain.ask("/flush_cache?timeout=0.5").status == 400
    assert plain.ask("/flush_cache?timeout=soon").status == 400
    assert plain.ask("/v1/loads").json()["loads"][0]["num_running_reqs"] == 3

    # SGLang looks for a request of that very name first, and only then at beginnings.
    assert plain.ask("/abort_request", {"rid": "bus"}).status == 200
    assert plain.ask("/v1/loads").json()["loads"][0]["num_running_reqs"] == 3
    assert plain.ask("/abort_request", {"rid": "busy"}).status == 200
    for rid in ("busy", "busy-2"):
        assert last_event(streams[rid][1])["meta_info"]["finish_reason"]["type"] == "abort"
    assert plain.ask("/flush_cache").status == 400
    plain.ask("/abort_request", {"abort_all": True})
    assert last_event(streams["other"][1])["meta_info"]["finish_reason"]["type"] == "abort"
    assert plain.ask("/flush_cache").status == 200


def test_an_abandoned_stream_is_aborted_after_two_seconds(plain):
    connection, response = start_long(plain, "abandoned")
    response.close()
    connection.close()
    plain.wait_idle()
    (line,) = [line for line in plain.truth("request") if line["rid"] == "abandoned"]
    assert line["finish"] == "abort"
    assert line["output_tok"] < 1500
    # Two seconds from the moment the server saw the client go; the clocks of the two differ a bit.
    assert line["finish_ns"] - line["first_token_ns"] >= 1.8e9


def test_more_requests_than_allowed_wait(launch):
    with launch("--max-running-requests", "2") as server:
        for at in range(2):
            start_long(server, f"slot-{at}")
        connection = server.connect()
        sampling = {"max_new_tokens": 2, "temperature": 0}
        body = {"text": "third", "rid": "third", "sampling_params": sampling}
        connection.request("POST", "/generate", json.dumps(body))
        load = {"num_waiting_reqs": 0}
        while load["num_waiting_reqs"] == 0:
            load = server.ask("/v1/loads").json()["loads"][0]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (2, 1)
        server.ask("/abort_request", {"rid": "slot-0"})
        meta = json.loads(connection.getresponse().read())["meta_info"]
        assert meta["completion_tokens"] == 2
        assert meta["queue_time"] > 0
        server.ask("/abort_request", {"abort_all": True})
        truth = server.truth("step")
    assert max(step["batch"] for step in truth) == 2


def test_a_full_kv_cache_makes_requests_wait(launch):
    with launch("--max-total-tokens", "3000") as server:
        _, running = start_long(server, "kv-1")
        connection = server.connect()
        sampling = {"max_new_tokens": 1500, "ignore_eos": True}
        connection.request(
            "POST", "/generate", json.dumps({"text": "kv", "sampling_params": sampling})
        )
        load = {"num_waiting_reqs": 0}
        while load["num_waiting_reqs"] == 0:
            load = server.ask("/v1/loads").json()["loads"][0]
        assert load["num_running_reqs"] == 1
        server.ask("/abort_request", {"abort_all": True})
        assert json.loads(connection.getresponse().read())["meta_info"]["completion_tokens"] == 0
        assert last_event(running)["meta_info"]["finish_reason"]["type"] == "abort"


def test_sigterm_lets_what_runs_finish_and_exits_with_0(launch):
    with launch() as server:
        _, response = start_long(server, "last")
        server.process.send_signal(signal.SIGTERM)
        assert last_event(response)["meta_info"]["completion_tokens"] == 1500
        assert server.process.wait(10) == 0
        log = "\n".join(line.partition("] ")[2] for line in server.log())
        assert "SIGTERM received. signum=None frame=None. Draining requests" in log
        assert "Remaining number of requests 0." in log
        assert [line["rid"] for line in server.truth("request")] == ["last"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/generate", {}, 400),
        ("/generate", {"text": ["a", "b"]}, 400),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": "many"}}, 400),
        ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": 9999}}, 400),
        (CHAT, {"messages": []}, 400),
        ("/v1/completions", {"prompt": None}, 400),
        ("/server_info", {}, 405),
        ("/nothing", {}, 404),
    ],
)
def test_bad_requests_are_refused_and_harm_nothing(plain, path, body, status):
    answer = plain.ask(path, body)
    assert answer.status == status
    assert plain.ask("/health").status == 200


def test_a_key_is_asked_for_when_one_is_set(launch):
    with launch("--api-key", "hush") as server:
        assert server.ask("/server_info").status == 401
        assert server.ask("/health").status == 200
        connection = server.connect()
        connection.request("GET", "/server_info", headers={"Authorization": "Bearer hush"})
        body = connection.getresponse().read().decode()
        assert json.loads(body)["api_key"] == "<redacted>"
        assert "hush" not in server.log_path.read_text()


def test_an_admin_key_alone_lets_abort_and_flush(launch):
    with launch("--api-key", "hush", "--admin-api-key", "hush-hush") as server:

        def status(path, key):
            connection = server.connect()
            connection.request("POST", path, headers={"Authorization": f"Bearer {key}"})
            return connection.getresponse().status

        assert status("/flush_cache", "hush") == 401
        assert status("/flush_cache", "hush-hush") == 200
        assert status("/generate", "hush-hush") == 401


def test_requests_on_one_connection_are_answered_in_order(plain):
    connection = plain.connect()
    for at in range(3):
        sampling = {"max_new_tokens": at + 1}
        body = {"text": "x", "stream": at == 1, "sampling_params": sampling}
        connection.request("POST", "/generate", json.dumps(body))
        assert b"completion_tokens" in connection.getresponse().read()
    assert clock.speed() == 1  # the simulator's speed is not the test's
