"""What a run reads is looked at before a server is started, and told with its place."""

import pytest
from rehearsal import write_scenario

from bench.errors import InputError
from bench.runner import Asked, start_run

CHAT = {"input_tok": 32, "max_output_tok": 8, "sampling": {"temperature": 0}}


def refused(folder, *, simulated=True, **changes):
    """(message and hint of a start that is refused, whether anything was written)."""
    scenario = write_scenario(folder, {"eagle3": []}, **changes)
    asked = Asked(scenario=scenario, simulated=simulated)
    with pytest.raises(InputError) as caught:
        start_run(asked, folder / "results", command_line=["bench", "run"])
    assert not (folder / "results").exists()
    return f"{caught.value} {caught.value.hint or ''}"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "asked for prompts, found none in it"),
        (b"\n \n", "asked for prompts, found none in it"),
        (b'{"prompt": 3}\n', "prompts.jsonl:1: wanted `prompt` (a text) or `messages`"),
        (b'{"prompt": "a"}\n{"pro', "prompts.jsonl:2: wanted a JSON object"),
        (b"\xff\xfe", "wanted UTF-8 text, found byte 0 to be none"),
    ],
)
def test_a_prompt_file_that_cannot_be_used(tmp_path, content, told):
    (tmp_path / "prompts.jsonl").write_bytes(content)
    chat = CHAT | {"dataset": "jsonl", "dataset_path": "./prompts.jsonl"}
    assert told in refused(tmp_path, workloads={"chat": chat})


def test_a_tokenizer_that_is_none(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{}")
    chat = CHAT | {"tokenizer_path": "./tokenizer.json"}
    assert "asked for the tokenizer" in refused(tmp_path, workloads={"chat": chat})


def test_weights_that_are_not_there(tmp_path):
    target, draft = ({"path": f"./{name}", "revision": "main"} for name in ("target", "draft"))
    told = refused(tmp_path, simulated=False, target=target, draft=draft)
    assert f"target.path: {tmp_path}/target is not there" in told
    (tmp_path / "target").mkdir()
    told = refused(tmp_path, simulated=False, target=target, draft=draft)
    assert "rehearsal.yaml:" in told
    assert f"draft.path: {tmp_path}/draft is not there. Give the folder" in told


def test_weights_of_a_server_elsewhere_or_simulated_are_not_looked_for(tmp_path):
    draft = {"path": "./draft", "revision": "main"}
    ssh = {"launcher": {"kind": "ssh", "host": "gpu-7"}}
    for simulated, server in ((True, {}), (False, ssh)):
        scenario = write_scenario(tmp_path, {"eagle3": []}, draft=draft, server=server)
        asked = Asked(scenario=scenario, simulated=simulated)
        _, writer = start_run(asked, tmp_path / "results", command_line=["bench", "run"])
        writer.close()


def test_a_fault_that_is_none_is_told_with_its_line(tmp_path):
    scenario = write_scenario(tmp_path, {"baseline": ["crahs:cell=1"]})
    with pytest.raises(InputError, match=r"'crahs' is no fault\. Did you mean crash") as caught:
        start_run(Asked(scenario=scenario, simulated=True), tmp_path, command_line=[])
    assert "arms.baseline.sim.faults.0" in str(caught.value)
