"""The simulator under pressure, beside what the real SGLang did then (tests/lab/scenes)."""

import json
import re
import threading
from pathlib import Path

import pytest
from test_simulator_behaviour import last_event, start_long
from test_simulator_contract import chat_kind, differences, layout

from bench import clock
from bench.simulator.refusals import StartFailure
from bench.simulator.settings import read_settings

SCENES = Path(__file__).parents[1] / "lab" / "scenes"
LONG = "def join(path, *parts):\n"
EAGLE3 = [
    *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", "models/tiny-eagle3"),
    *("--speculative-num-steps", "3", "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "4"),
]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def recorded(scene: str, name: str) -> dict:
    return json.loads((SCENES / scene / "answers.json").read_text())[name]


def lines_of(scene: str) -> list[str]:
    return (SCENES / scene / "server.log").read_text().splitlines()


def shape(line: str) -> str:
    line = re.sub(r"^\[[^\]]*?( DP\d)?( TP\d)?\]", r"[time\1]", line)
    line = line.replace("cpu graph", "cuda graph").replace("True", "False")
    return re.sub(r"-?\d+(\.\d+)*", "N", line)


def shapes(lines: list[str], *words: str) -> set[str]:
    return {shape(line) for line in lines if any(word in line for word in words)}


def events_of(body: str) -> list[dict]:
    return [
        json.loads(event.removeprefix("data: "))
        for event in body.split("\n\n")
        if event.startswith("data: {")
    ]


def sample_names(text: str) -> set[tuple[str, tuple[str, ...]]]:
    found = re.findall(r"^(sglang:\w+)(?:\{(.*?)\})? ", text, re.MULTILINE)
    return {(name, tuple(re.findall(r"(\w+)=", labels))) for name, labels in found}


def total(server, name: str, **labels: str) -> float:
    return sum(
        value
        for (found, pairs), value in server.metrics().items()
        if found == name and labels.items() <= dict(pairs).items()
    )


def together(server, bodies: list[tuple[str, dict]]) -> list:
    answers: list = [None] * len(bodies)

    def ask(at: int, path: str, body: dict) -> None:
        answers[at] = server.ask(path, body)

    threads = [threading.Thread(target=ask, args=(at, *body)) for at, body in enumerate(bodies)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def wait_until(holds) -> None:
    deadline_ns = clock.monotonic_ns() + 20_000_000_000
    while not holds():
        assert clock.monotonic_ns() < deadline_ns


def load(server) -> dict:
    return server.ask("/v1/loads").json()["loads"][0]


def openai(path: str, *, stream: bool, tokens: int = 4) -> dict:
    body = {"model": "tiny", "temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    prompt = {"messages": [{"role": "user", "content": LONG}]}
    return {**body, "stream": stream, **(prompt if path == CHAT else {"prompt": LONG})}


# ------------------------------------------------------------------------------------ the queue


def test_a_full_queue_answers_as_recorded(launch):
    with launch("--max-running-requests", "1", "--max-queued-requests", "1") as server:
        start_long(server, "runs")
        _, waits = start_waiting(server, "waits")
        whole = server.generate("a", 4)
        stream = server.generate("a", 4, stream=True)
        for name, path in (("chat", CHAT), ("completions", COMPLETIONS)):
            for form in ("json", "sse"):
                answer = server.ask(path, openai(path, stream=form == "sse"))
                real = recorded("queue-limit", f"full-{name}.{form}")
                assert (answer.status, answer.body.decode()) == (real["status"], real["body"])
        assert load(server)["num_waiting_reqs"] == 1
        server.ask("/abort_request", {"abort_all": True})
        waits.read()
        server.wait_idle()
        assert total(server, "sglang:num_requests_total") == 1  # those of the queue never were
        assert total(server, "sglang:num_aborted_requests_total") == 1
    real = recorded("queue-limit", "full.json")
    assert (whole.status, whole.body.decode()) == (real["status"], real["body"])
    (event,), (real_event,) = (
        stream.events(),
        events_of(recorded("queue-limit", "full.sse")["body"]),
    )
    assert layout(event) == layout(real_event)
    reason = event["meta_info"]["finish_reason"]
    assert reason == real_event["meta_info"]["finish_reason"]


def start_waiting(server, rid: str):
    """A stream in the queue: its head is there, its first token is not."""
    connection = server.connect()
    body = {"text": rid, "rid": rid, "stream": True, "sampling_params": {"max_new_tokens": 4}}
    connection.request("POST", "/generate", json.dumps(body))
    response = connection.getresponse()
    wait_until(lambda: load(server)["num_waiting_reqs"] == 1)
    return connection, response


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize(("name", "path"), [("chat", CHAT), ("completions", COMPLETIONS)])
def test_aborted_in_the_queue_openai_answers_as_recorded(launch, name, path, form):
    with launch("--max-running-requests", "1") as server:
        start_long(server, "runs")
        thread_answers = []
        asking = threading.Thread(
            target=lambda: thread_answers.append(
                server.ask(path, openai(path, stream=form == "sse"))
            )
        )
        asking.start()
        wait_until(lambda: load(server)["num_waiting_reqs"] == 1)
        server.ask("/abort_request", {"abort_all": True})
        asking.join()
    (answer,) = thread_answers
    real = recorded("abort-waiting", f"{name}.{form}")
    assert answer.status == real["status"]
    ours = answer.events() if form == "sse" else [answer.json()]
    theirs = events_of(real["body"]) if form == "sse" else [json.loads(real["body"])]
    assert [layout(one) for one in ours] == [layout(one) for one in theirs]
    assert [one["choices"][0]["finish_reason"] for one in ours] == [
        one["choices"][0]["finish_reason"] for one in theirs
    ]
    if form == "json":
        assert ours[0]["usage"] == theirs[0]["usage"]


def test_aborts_end_requests_as_recorded(launch):
    with launch("--max-running-requests", "2") as server:
        runs = start_long(server, "run")[1], start_long(server, "run-2")[1]
        waits = start_waiting(server, "waits")[1]
        server.ask("/abort_request", {"rid": "ru"})
        server.ask("/abort_request", {"rid": ""})
        assert load(server)["num_running_reqs"] == 2
        server.ask("/abort_request", {"rid": "waits"})
        queued = events_of(waits.read().decode())[-1]
        server.ask("/abort_request", {"rid": "run"})
        ended = [last_event(response) for response in runs]
        assert total(server, "sglang:num_aborted_requests_total") == 2  # calls, not requests
        assert total(server, "sglang:num_requests_total") == 2
        warned = shapes(server.log(), "Ignore abort_request")
    assert warned == shapes(lines_of("abort"), "Ignore abort_request")
    real = events_of(recorded("abort", "waits.sse")["body"])[-1]
    assert layout(queued) == layout(real)
    assert queued["meta_info"]["finish_reason"] == real["meta_info"]["finish_reason"]
    real = events_of(recorded("abort", "run.sse")["body"])[-1]
    for event in ended:
        assert layout(event) == layout(real)
        assert event["meta_info"]["finish_reason"] == real["meta_info"]["finish_reason"]


# ------------------------------------------------------------------------------ stream interval


def test_a_stream_interval_holds_tokens_back_as_recorded(launch):
    def counts(body: str) -> list[int]:
        return [event["meta_info"]["completion_tokens"] for event in events_of(body)]

    with launch("--stream-interval", "8") as server:
        ours = server.generate("server", 42, stream=True, sampling={"ignore_eos": True})
        own = {"ignore_eos": True, "stream_interval": 3}
        mine = server.generate("own", 42, stream=True, sampling=own)
        chat = server.ask(CHAT, openai(CHAT, stream=True, tokens=21)).events()
    for answer, name in ((ours, "server.sse"), (mine, "own.sse")):
        found, real = (
            counts(answer.body.decode()),
            counts(recorded("stream-interval", name)["body"]),
        )
        # A process that was late has sent two as one.
        assert set(found) <= set(real)
        assert found[-1] == real[-1]
        assert len(found) > len(real) / 2
    real = events_of(recorded("stream-interval", "chat.sse")["body"])
    assert {chat_kind(event) for event in chat} == {chat_kind(event) for event in real}
    assert 3 < len(chat) <= len(real)


@pytest.mark.parametrize("incremental", [False, True])
def test_with_drafts_an_event_has_at_least_the_interval(launch, incremental):
    more = ["--incremental-streaming-output"] if incremental else []
    with launch(*EAGLE3, "--stream-interval", "8", *more) as server:
        events = server.generate("spec", 90, stream=True, sampling={"ignore_eos": True}).events()
    scene = "stream-interval-incremental" if incremental else "stream-interval-eagle3"
    for found, most in ((events_of(recorded(scene, "server.sse")["body"]), 3), (events, 11)):
        ends = [event["meta_info"]["completion_tokens"] for event in found]
        gaps = [b - a for a, b in zip([0, *ends], ends, strict=False)]
        assert gaps[0] == 1 or (gaps[0] >= 8 and found is events)
        assert all(8 <= gap <= 8 + most for gap in gaps[1:-1])  # ours may have been late by one
        lengths = [len(event["output_ids"]) for event in found]
        assert lengths == (gaps if incremental else ends)


# ----------------------------------------------------------------------------------- retraction

PROMPT_BYTES = 84 * 4


def one_after_the_other(server, prompts: list[str], tokens: int) -> list[list[dict]]:
    """Streams, each begun once the one before has its first token; the events of each."""
    responses = []
    for prompt in prompts:
        connection = server.connect()
        sampling = {"temperature": 0, "max_new_tokens": tokens}
        body = {"text": prompt, "stream": True, "sampling_params": sampling}
        connection.request("POST", "/generate", json.dumps(body))
        response = connection.getresponse()
        first = b""
        if len(responses) < 4:  # later ones may have to wait
            first = response.readline()
        responses.append((first, response))
    return [events_of((first + response.read()).decode()) for first, response in responses]


@pytest.mark.parametrize("scene", ["retraction", "retraction-eagle3"])
def test_a_full_kv_cache_retracts_as_recorded(launch, scene):
    arguments = ["--max-total-tokens", "1600", "--schedule-conservativeness", "0.3"]
    with launch(*arguments, *(EAGLE3 if scene.endswith("eagle3") else [])) as server:
        prompts = [f"{at} retract ".ljust(PROMPT_BYTES, "x") for at in range(6)]
        answers = one_after_the_other(server, prompts, 400)
        log = server.log()
        truth = server.truth("request")
        names = sample_names(server.ask("/metrics").body.decode())
        retracted = total(server, "sglang:num_retracted_requests_total")
        again = total(server, "sglang:num_retracted_input_tokens_total")
    ours = [line for line in log if "Retract requests" in line]
    real = [line for line in lines_of(scene) if "Retract requests" in line]
    assert {shape(line) for line in ours} == {shape(line) for line in real}
    assert 2 <= len(ours) <= 4  # it was 3
    metas = [events[-1]["meta_info"] for events in answers]
    assert sum(meta["num_retractions"] for meta in metas) == retracted >= 2
    assert again == 84 * retracted
    assert sum(line["retraction_ct"] for line in truth) == retracted
    # Nothing is lost, and nothing said twice.
    assert [meta["completion_tokens"] for meta in metas] == [400] * 6
    texts = {events[-1]["text"] for events in answers}
    assert len(texts) == 6
    prom = (SCENES / scene / "metrics.prom").read_text()
    counted = {name for name in names if "retract" in name[0]}
    assert counted == {name for name in sample_names(prom) if "retract" in name[0]}


def test_what_was_retracted_says_what_it_would_have_said(launch, plain):
    prompts = [f"{at} once more ".ljust(PROMPT_BYTES, "x") for at in range(6)]
    with launch("--max-total-tokens", "1600", "--schedule-conservativeness", "0.3") as server:
        answers = one_after_the_other(server, prompts, 400)
    assert any(events[-1]["meta_info"]["num_retractions"] for events in answers)
    for prompt, events in zip(prompts, answers, strict=True):
        counts = [event["meta_info"]["completion_tokens"] for event in events]
        assert counts == sorted(set(counts))
        assert events[-1]["text"] == plain.generate(prompt, 400).json()["text"]


def test_one_request_too_many_for_the_cache_is_aborted_alone(launch):
    # With drafts each request wants room for two steps beyond its tokens.
    with launch(*EAGLE3, "--max-total-tokens", "300") as server:
        sampling = {"temperature": 0, "max_new_tokens": 1000, "ignore_eos": True}
        answer = server.ask("/generate", {"text": "x" * 400, "sampling_params": sampling})
        assert answer.status == 500
        assert "Out of memory even after retracting" in answer.json()["message"]
        assert server.generate("after", 8).status == 200
    too_long = server.log()
    assert any("Retract requests. #retracted_reqs: 0" in line for line in too_long)


# ------------------------------------------------------------------------------------- adaptive


def test_adaptive_steps_are_logged_and_shown_as_recorded(launch, tmp_path):
    config = tmp_path / "adaptive.json"
    config.write_text(
        json.dumps(
            {
                "1": {
                    "candidate_steps": [1, 3],
                    "update_interval": 4,
                    "warmup_batches": 3,
                    "up_hysteresis": -1,
                    "down_hysteresis": 1,
                },
                "3": {"candidate_steps": [0, 1], "update_interval": 5, "warmup_batches": 5},
            }
        )
    )
    arguments = ["--speculative-adaptive", "--speculative-adaptive-config", str(config)]
    more = [
        "--disable-cuda-graph",
        "--decode-log-interval",
        "10",
        "--sim-acceptance",
        "0.2,0.05,0.01",
    ]
    with launch(*EAGLE3, *arguments, *more) as server:
        before = (SCENES / "adaptive" / "before.prom").read_text()
        assert re.search(r"^sglang:spec_num_steps\{.*\} 0.0$", before, re.MULTILINE)
        assert total(server, "sglang:spec_num_steps") == 0  # until the first log tick
        long = {"ignore_eos": True}
        alone = server.generate("alone", 120, sampling=long).json()["meta_info"]
        steps = total(server, "sglang:spec_num_steps")
        assert total(server, "sglang:spec_num_draft_tokens") == steps + 1
        sampling = {"temperature": 0, "max_new_tokens": 60, **long}
        bodies = [("/generate", {"text": f"{at}", "sampling_params": sampling}) for at in range(4)]
        together(server, bodies)
        log = server.log()
        truth = server.truth("step")
        info = server.ask("/server_info").json()
    words = ("Adaptive spec params updated", "Switch adaptive", "AdaptiveSpeculativeParams")
    assert shapes(log, *words) == shapes(lines_of("adaptive"), *words)
    assert shapes(log, "Built adaptive") == shapes(lines_of("adaptive"), "Built adaptive")
    alone_steps = {line["num_steps"] for line in truth if line["step"] == "decode"}
    assert alone_steps == {0, 1, 3}
    four = [line for line in truth if line["batch"] == 4 and line["step"] == "decode"]
    assert {line["num_steps"] for line in four} <= {0, 1}
    assert alone["spec_num_proposed_drafts"] == 3 * alone["spec_verify_ct"]
    assert sum(alone["spec_correct_drafts_histogram"]) == alone["spec_verify_ct"]
    assert info["speculative_num_steps"] == 3  # what it began with
    real = json.loads(recorded("adaptive", "alone")["body"])["meta_info"]
    assert differences(real, alone) == []


# ---------------------------------------------------------------------------------------- ranks


RANKS = ["--tp-size", "4", "--dp-size", "2", "--sim-target", "qwen3-30b-a3b"]


def test_ranks_answer_count_and_log_as_recorded(launch):
    arguments = [*RANKS, "--decode-log-interval", "20"]
    with launch(*arguments) as server:
        metas = [server.generate(str(at), 60).json()["meta_info"] for at in range(4)]
        assert [meta["dp_rank"] for meta in metas] == [0, 1, 0, 1]
        chosen = server.generate("a", 4, routed_dp_rank=1).json()["meta_info"]
        assert chosen["dp_rank"] == 1
        refused = server.generate("a", 4, routed_dp_rank=5)
        real = recorded("ranks", "rank-5.json")
        assert (refused.status, refused.body.decode()) == (real["status"], real["body"])
        info = server.ask("/server_info").json()
        loads = server.ask("/v1/loads").json()
        assert [one["dp_rank"] for one in loads["loads"]] == [0, 1]
        one = server.ask("/v1/loads?dp_rank=1").json()["loads"]
        assert [load["dp_rank"] for load in one] == [1]
        names = sample_names(server.ask("/metrics").body.decode())
        decoded = [
            total(server, "sglang:realtime_tokens_total", mode="decode", dp_rank=str(rank))
            for rank in range(2)
        ]
        log = server.log()
        truth = server.truth("step")
    real_info = json.loads((SCENES / "ranks" / "server_info.json").read_text())
    assert set(differences(real_info, info)) <= {".simulated is invented"}
    assert len(info["internal_states"]) == len(real_info["internal_states"]) == 2
    assert info["internal_states"][0]["world_size"] == 8
    assert decoded == [118, 121]
    real_names = sample_names((SCENES / "ranks" / "metrics.prom").read_text())
    invented = {n for n in names if not n[0].endswith("_bucket")} - real_names
    # The real one exported no retraction and its CPU no graph; labels are compared with the rest.
    assert invented == set()
    words = ("Decode batch", "Prefill batch", "Launch DP")
    assert shapes(log, *words) == shapes(lines_of("ranks"), *words)
    assert {line["dp_rank"] for line in truth} == {0, 1}


def test_ranks_run_at_the_same_time(launch):
    with launch(*RANKS, "--max-running-requests", "1") as server:
        sampling = {"temperature": 0, "max_new_tokens": 80, "ignore_eos": True}
        bodies = [("/generate", {"text": f"{at}", "sampling_params": sampling}) for at in range(4)]
        together(server, bodies)
        server.wait_idle()
        steps = server.truth("step")
    spans = {
        rank: [(s["start_ns"], s["end_ns"]) for s in steps if s["dp_rank"] == rank]
        for rank in (0, 1)
    }
    assert max(step["batch"] for step in steps) == 1
    first_ends = [spans[rank][-1][1] for rank in (0, 1)]
    assert max(start for start, _ in (spans[0][0], spans[1][0])) < min(first_ends)


def test_the_least_loaded_rank_is_chosen_where_that_is_asked_for(launch):
    arguments = [*RANKS, "--load-balance-method", "total_requests"]
    with launch(*arguments) as server:
        first = start_long(server, "one")[1]
        ranks = {server.generate("short", 2).json()["meta_info"]["dp_rank"] for _ in range(3)}
        server.ask("/abort_request", {"abort_all": True})
        assert ranks == {1 - last_event(first)["meta_info"]["dp_rank"]}


# ----------------------------------------------------------------------------- forced acceptance


def test_forced_acceptance_is_alike_over_a_batch_and_writes_one_token(launch, monkeypatch):
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "2.6")
    with launch(*EAGLE3) as server:
        sampling = {"temperature": 0, "max_new_tokens": 300}
        body = {"text": "forced", "sampling_params": sampling}
        whole = server.ask("/generate", body).json()
        metas = [
            answer.json()["meta_info"]
            for answer in together(server, [("/generate", body) for _ in range(4)])
        ]
    real = json.loads(recorded("simulated-acceptance", "whole.json")["body"])
    for answer in (whole, real):
        assert set(answer["output_ids"][1:]) == {100}
        assert answer["output_ids"][0] != 100
        assert answer["meta_info"]["spec_correct_drafts_histogram"][0] == 0
    meta = whole["meta_info"]
    assert meta["finish_reason"]["type"] == "length"
    length = 1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"]
    assert length == pytest.approx(2.6, abs=0.2)
    assert all(set(range(3)) >= set(range(len(m["spec_correct_drafts_histogram"]))) for m in metas)


def test_n_grams_are_verified_without_a_draft_model(launch):
    ngram = ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8"]
    with launch(*ngram, "--sim-acceptance", "0.9,0.8,0.7") as server:
        meta = server.generate("n-grams", 90, sampling={"ignore_eos": True}).json()["meta_info"]
        info = server.ask("/server_info").json()
        log = server.log()
    real = json.loads(recorded("ngram", "whole.json")["body"])["meta_info"]
    assert differences(real, meta) == []
    assert meta["spec_num_proposed_drafts"] == 7 * meta["spec_verify_ct"]
    assert len(meta["spec_correct_drafts_histogram"]) <= 4
    assert info["speculative_num_draft_tokens"] == 8
    assert sum("Load weight begin" in line for line in log) == 1


# ------------------------------------------------------------------------------------- coalescing


def test_a_client_that_does_not_read_gets_what_piled_up_as_one_event(launch):
    with launch() as server:
        connection = server.connect()
        sampling = {"max_new_tokens": 1500, "ignore_eos": True, "temperature": 0}
        body = {"text": "slow", "rid": "slow", "stream": True, "sampling_params": sampling}
        connection.request("POST", "/generate", json.dumps(body))
        server.wait_idle()  # all of it has been made; the socket took a part
        events = events_of(connection.getresponse().read().decode())
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(set(counts))
    assert counts[-1] == 1500
    assert len(counts) < 1400
    assert len(events[-1]["output_ids"]) == 1500


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("name", json.loads((SCENES / "refusals" / "answers.json").read_text()))
def test_refusals_end_as_recorded(name):
    real = recorded("refusals", name)
    eight = ["--tp-size", "8"] if real["arguments"] else []
    with pytest.raises(StartFailure) as caught:
        read_settings([*real["arguments"], *eight])
    assert caught.value.exit_code == real["exit"]
    assert str(caught.value).splitlines()[0] == real["end"][-1]
