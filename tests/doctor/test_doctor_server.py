"""`bench doctor server`: each pattern named from what a server does, and nothing else touched."""

import json
import sys
from pathlib import Path
from shutil import copytree

import pytest
from accepting_server import Accepting

from bench.cli import main

TINY_DRAFT = Path(__file__).parents[1] / "lab" / "models" / "tiny-eagle3"
HEALTHY = (0.75, 0.7, 0.65)


@pytest.fixture
def doctor(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", "doctor", "server", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    return run


def patterns(doctor, accepting, *arguments):
    with accepting.serving() as url:
        code, out, err = doctor(url, "--json", *arguments)
    assert err == ""
    told = json.loads(out)
    named = [found["pattern"] for found in told["patterns"]]
    assert code == (0 if named in (["healthy"], ["undecided"]) else 4)
    return named, told


def test_a_healthy_draft_is_healthy(doctor):
    named, told = patterns(doctor, Accepting(lambda *_: HEALTHY))
    assert named == ["healthy"]
    assert [group["group"] for group in told["groups"]] == [
        "128 tokens",
        "1024 tokens",
        "8192 tokens",
    ]
    shares = told["groups"][0]["at_position"]
    assert shares == pytest.approx([0.75, 0.525, 0.34], abs=0.06)


def test_a_low_first_position_is_wiring(doctor):
    named, _ = patterns(doctor, Accepting(lambda *_: (0.19, 0.3, 0.3)))
    assert named == ["wiring"]


def test_a_draft_that_accepts_nothing_is_wiring(doctor):
    named, told = patterns(doctor, Accepting(lambda *_: (0.0, 0.0, 0.0)))
    assert named == ["wiring"]
    assert told["groups"][0]["accept_len_tok"] == 1


def test_a_fall_after_the_first_position_is_recurrence(doctor):
    named, _ = patterns(doctor, Accepting(lambda *_: (0.7, 0.1, 0.3)))
    assert named == ["recurrence"]


def test_a_fall_with_the_context_is_named(doctor):
    def accepted(_prompt, words):
        return HEALTHY if words < 2000 else (0.45, 0.4, 0.4)

    assert patterns(doctor, Accepting(accepted))[0] == ["context"]


def test_a_fall_from_training_to_serving_is_a_shift(doctor, tmp_path):
    for name in ("training", "serving"):
        lines = [json.dumps({"prompt": f"{name} prompt {place}"}) for place in range(12)]
        (tmp_path / name).write_text("\n".join(lines))

    def accepted(prompt, _words):
        return (0.4, 0.35, 0.35) if "serving" in prompt else HEALTHY

    files = ("--training", str(tmp_path / "training"), "--serving", str(tmp_path / "serving"))
    named, told = patterns(doctor, Accepting(accepted), *files)
    assert named == ["shift"]
    assert [group["group"] for group in told["groups"]][-2:] == ["training", "serving"]
    assert patterns(doctor, Accepting(lambda *_: HEALTHY), *files)[0] == ["healthy"]


def test_training_accuracy_says_what_to_expect(doctor):
    accuracy = ("--train-acc", "0.747,0.71,0.68")
    named, told = patterns(doctor, Accepting(lambda *_: (0.45, 0.4, 0.4)), *accuracy)
    assert named == ["below-training"]
    expected = 1 + 0.747 + 0.747 * 0.71 + 0.747 * 0.71 * 0.68
    assert told["expected_accept_len_tok"] == pytest.approx(expected)
    assert patterns(doctor, Accepting(lambda *_: (0.72, 0.7, 0.65)), *accuracy)[0] == ["healthy"]


def test_too_few_steps_decide_nothing(doctor):
    server = Accepting(lambda *_: (1.0, 1.0, 1.0))
    server.chat = lambda _body: {
        "object": "chat.completion",
        "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 4},
        "sglext": {
            "spec_tokens_details": {
                "spec_verify_ct": 2,
                "spec_num_correct_drafts": 0,
                "spec_correct_drafts_histogram": [2],
            }
        },
    }
    assert patterns(doctor, server)[0] == ["undecided"]


def test_the_server_is_only_read(doctor):
    server = Accepting(lambda *_: HEALTHY)
    patterns(doctor, server)
    assert set(server.calls) == {("GET", "/server_info"), ("POST", "/v1/chat/completions")}


def test_prompts_fit_the_servers_context(doctor):
    server = Accepting(lambda *_: HEALTHY, context_length=2048)
    _, told = patterns(doctor, server)
    assert [group["group"] for group in told["groups"]] == ["128 tokens", "1024 tokens"]


def test_a_failed_request_is_counted(doctor):
    server = Accepting(lambda *_: HEALTHY)
    server.fails = (5, 9)
    named, told = patterns(doctor, server)
    assert (named, told["failed_ct"]) == (["healthy"], 2)
    assert sum(group["requests"] for group in told["groups"]) == 34


def test_what_is_not_as_asked_is_told(doctor):
    _, told = patterns(doctor, Accepting(lambda *_: HEALTHY))
    assert [d["name"] for d in told["differences"]] == ["max_running_requests"]


def test_the_drafts_files_are_examined_where_they_are(doctor, tmp_path):
    copytree(TINY_DRAFT, tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    config["tie_word_embeddings"] = True
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    server = Accepting(lambda *_: (0.02, 0.0, 0.0), draft=str(tmp_path / "draft"))
    named, told = patterns(doctor, server)
    assert named == ["wiring"]
    assert [finding["rule"] for finding in told["files"]] == ["M16"]
    assert patterns(doctor, Accepting(lambda *_: HEALTHY))[1]["files"] is None


def test_a_weak_draft_is_served_as_it_was_trained(doctor):
    weak = Accepting(lambda *_: (0.25, 0.3, 0.3))
    assert patterns(doctor, weak, "--train-acc", "0.27,0.3,0.3")[0] == ["healthy"]
    assert patterns(doctor, weak, "--train-acc", "0.7,0.6,0.5")[0] == ["wiring"]


def test_a_server_that_fails_is_told_with_what_its_files_show(doctor, tmp_path):
    copytree(TINY_DRAFT, tmp_path / "draft")
    failing = Accepting(lambda *_: HEALTHY, draft=str(tmp_path / "draft"))
    failing.fails = range(100)
    with failing.serving() as url:
        code, _, err = doctor(url)
    assert (code, "all of 36 requests failed" in " ".join(err.split())) == (3, True)
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    config["tie_word_embeddings"] = True
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    named, told = patterns(doctor, failing)
    assert (named, told["failed_ct"], told["groups"]) == (["failing"], 36, [])
    assert [finding["rule"] for finding in told["files"]] == ["M16"]


def test_files_that_are_wrong_make_a_server_suspect(doctor, tmp_path):
    copytree(TINY_DRAFT, tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    config["norm_before_residual"] = True
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    with Accepting(lambda *_: HEALTHY, draft=str(tmp_path / "draft")).serving() as url:
        code, out, _ = doctor(url, "--json")
    assert (code, json.loads(out)["patterns"][0]["pattern"]) == (4, "healthy")


def test_the_table_says_it_in_words(doctor):
    with Accepting(lambda *_: (0.19, 0.3, 0.3), simulated=True).serving() as url:
        code, out, _ = doctor(url, "--train-acc", "0.747")
    assert code == 4
    for part in ("SIMULATED", "EAGLE3", "128 tokens", "WIRING", "next:", "1.75"):
        assert part in out


def test_a_server_that_does_not_speculate_is_a_mistake(doctor):
    with Accepting(lambda *_: HEALTHY, speculative_algorithm=None).serving() as url:
        code, _, err = doctor(url)
    assert code == 2
    assert "does not speculate" in err


def test_a_server_without_counters_is_an_error(doctor):
    with Accepting(lambda *_: None).serving() as url:
        code, _, err = doctor(url)
    assert code == 3
    assert "no counters" in err


def test_mistakes_are_told_without_a_traceback(doctor):
    assert doctor("http://127.0.0.1:9")[0] == 3
    assert doctor("nonsense")[0] == 2
    with Accepting(lambda *_: HEALTHY).serving() as url:
        for wrong in ("1.5", "a", "-1"):
            assert doctor(url, "--train-acc", wrong)[0] == 2
        assert doctor(url, "--api-key-env", "SPECDYNO_NO_SUCH_KEY")[0] == 2
        assert doctor(url, "--training", "/nowhere")[0] == 2
