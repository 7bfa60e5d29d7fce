"""`bench doctor draft` and `convert`, as typed."""

import json
import sys

import pytest
from draft_checkpoints import TINY_DRAFT, TINY_TARGET, as_speculators, tiny_draft

from bench.cli import main


@pytest.fixture
def doctor(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", "doctor", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    return run


def test_a_clean_draft_ends_with_0(doctor):
    code, out, err = doctor("draft", str(TINY_DRAFT), "--target", str(TINY_TARGET))
    assert (code, err) == (0, "")
    assert "Clean" in out
    assert "fc [192, 576]" in out


def test_a_suspect_draft_ends_with_4_and_says_why(doctor, tmp_path):
    files = tiny_draft()
    files.config["tie_word_embeddings"] = True
    code, out, _ = doctor("draft", files.write(tmp_path), "--target", str(TINY_TARGET))
    assert code == 4
    for part in ("FAULT M16", "tie_word_embeddings is true", "does:", "fix:"):
        assert part in out


def test_json_says_the_same(doctor, tmp_path):
    files = tiny_draft()
    files.config["tie_word_embeddings"] = True
    code, out, _ = doctor("draft", files.write(tmp_path), "--json")
    told = json.loads(out)
    assert (code, told["status"], told["form"]) == (4, "suspect", "llama-eagle3")
    assert [finding["rule"] for finding in told["findings"]] == ["M16"]
    assert told["findings"][0]["level"] == "fault"
    assert told["weights"]["dropped"] == ["lm_head.weight"]
    assert json.loads(doctor("draft", str(TINY_DRAFT), "--json")[1])["status"] == "clean"


def test_the_target_of_the_command_line_is_read(doctor):
    arguments = f"--model-path {TINY_TARGET} --speculative-algorithm EAGLE"
    code, out, _ = doctor("draft", str(TINY_DRAFT), "--launch-args", arguments)
    assert code == 4
    assert "M6" in out
    assert "layers 1, 3, 4" in out
    assert "No target" not in out


def test_a_mistake_ends_with_2_and_no_traceback(doctor, tmp_path):
    code, _, err = doctor("draft", str(tmp_path / "none"))
    assert code == 2
    assert err.startswith("bench: there is no folder")
    assert doctor("draft", str(TINY_DRAFT), "--launch-args", "'open")[0] == 2


def test_convert_says_what_was_written(doctor, tmp_path):
    source = as_speculators(tiny_draft()).write(tmp_path / "src")
    code, out, _ = doctor("draft", source)
    assert code == 4
    assert "bench doctor convert" in out
    code, out, _ = doctor("convert", source, str(tmp_path / "dst"))
    assert (code, "13 tensors bit for bit" in out) == (0, True)
    code, _, err = doctor("convert", source, str(tmp_path / "dst"))
    assert (code, "there already" in err) == (2, True)


SCENARIO = """\
name: sick
question: Does bench say what is wrong with a draft before it starts a server?
target: {{path: {target}, revision: main}}
draft: {{path: {draft}, revision: main}}
server: {{gpus: 0, launcher: {{command: ["false"]}}, arguments: [--max-running-requests 8]}}
arms:
  baseline: {{}}
  eagle3:
    speculative: {{algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}}
workloads:
  chat: {{input_tok: 32, max_output_tok: 16, sampling: {{temperature: 0}}}}
loads: {{concurrency: [1]}}
measure: {{steady_s: 1, requests_per_slot: 2, pairs: 1, expected_output_tok_per_s_per_user: 90}}
"""


@pytest.fixture
def run_sick(monkeypatch, capsys, tmp_path):
    """`bench run` of a server that dies at once, with a draft in a local folder."""
    monkeypatch.chdir(tmp_path)

    def run(files, *arguments):
        draft = files.write(tmp_path / "draft")
        (tmp_path / "sick.yaml").write_text(SCENARIO.format(target=TINY_TARGET, draft=draft))
        monkeypatch.setattr(sys, "argv", ["bench", "run", "sick.yaml", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capsys.readouterr())

    return run


def test_run_says_what_is_wrong_with_a_draft_before_it_starts_a_server(run_sick):
    files = tiny_draft()
    files.config["tie_word_embeddings"] = True
    code, _, err = run_sick(files, "--quiet")
    assert code == 3  # the server died, which the doctor did not keep from being tried
    assert "arm eagle3, draft" in err
    assert err.index("FAULT M16") < err.index("no cell was measured")
    assert "FAULT" not in run_sick(files, "--quiet", "--no-doctor")[2]
    assert "draft" not in run_sick(tiny_draft(), "--quiet")[2]


def test_run_goes_on_with_a_draft_that_cannot_be_examined(run_sick, tmp_path):
    files = tiny_draft()
    files.tensors = {}
    (tmp_path / "draft").mkdir()
    (tmp_path / "draft" / "pytorch_model.bin").write_bytes(b"\x80\x02.")
    code, _, err = run_sick(files, "--quiet")
    assert code == 3
    assert "its draft could not be examined" in err
