"""Hugging Face ids, read from a hub on this machine by huggingface_hub's own client."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from draft_checkpoints import CHOSEN, TINY_DRAFT, TINY_TARGET, reduced_draft, tiny_draft
from fake_hub import FakeHub

pytest.importorskip("huggingface_hub")

BENCH = Path(sys.executable).with_name("bench")
HEADER = "import sys; sys.modules['huggingface_hub'] = None\nfrom bench.cli import main\nmain()"


@pytest.fixture
def doctor(tmp_path):
    """Runs the installed command: huggingface_hub reads its endpoint when it is imported."""

    def run(endpoint, *arguments, command=(BENCH,)):
        environment = {
            **os.environ,
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }
        done = subprocess.run(
            [*command, "doctor", *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout, done.stderr

    return run


def header_bytes(folder):
    with (folder / "model.safetensors").open("rb") as file:
        return 8 + int.from_bytes(file.read(8), "little")


def test_a_draft_of_the_hub_is_examined_from_its_headers(doctor):
    hub = FakeHub({"lab/tiny-eagle3": TINY_DRAFT, "lab/tiny-llama": TINY_TARGET})
    with hub.serving() as url:
        code, out, err = doctor(
            url, "draft", "lab/tiny-eagle3", "--target", "lab/tiny-llama", "--json"
        )
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["draft"], told["status"]) == ("lab/tiny-eagle3", "clean")
    assert told["captured_states"] == [2, 4, 5]
    assert hub.sent["lab/tiny-eagle3/model.safetensors"] == header_bytes(TINY_DRAFT)
    assert hub.sent["lab/tiny-llama/model.safetensors"] == header_bytes(TINY_TARGET)
    assert not [file for file in hub.whole if file.endswith(".safetensors")]


def test_of_its_weights_only_the_maps_are_read(doctor, tmp_path):
    reduced_draft("absolute").write(tmp_path / "draft")
    hub = FakeHub({"lab/absolute": tmp_path / "draft"})
    with hub.serving() as url:
        code, out, _ = doctor(url, "draft", "lab/absolute", "--target", str(TINY_TARGET), "--json")
    assert code == 4
    assert [finding["rule"] for finding in json.loads(out)["findings"]] == ["M8"]
    maps = 8 * len(CHOSEN) + 2048  # d2t and t2d
    sent = hub.sent["lab/absolute/model.safetensors"]
    assert sent == header_bytes(tmp_path / "draft") + maps


def test_what_the_hub_has_not_is_told(doctor, tmp_path):
    folder = tmp_path / "pickled"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(tiny_draft().config))
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")
    hub = FakeHub({"lab/pickled": folder})
    with hub.serving() as url:
        code, _, err = doctor(url, "draft", "lab/nothing")
        assert code == 2
        assert "lab/nothing cannot be read from the Hugging Face hub" in " ".join(err.split())
        code, _, err = doctor(url, "draft", "lab/pickled")
        assert (code, "pickle" in err) == (2, True)
    assert set(hub.sent) == {"lab/pickled/config.json"}
    assert [path for _, path in hub.asked if "pytorch_model.bin" in path] == []


def test_a_hub_that_cannot_be_reached_is_told(doctor):
    code, _, err = doctor("http://127.0.0.1:9", "draft", "lab/tiny-eagle3")
    assert code == 2
    assert "cannot be read from the Hugging Face hub" in " ".join(err.split())


def test_without_huggingface_hub_a_folder_is_asked_for(doctor):
    command = (sys.executable, "-c", HEADER)
    code, _, err = doctor("http://127.0.0.1:9", "draft", "lab/tiny-eagle3", command=command)
    assert code == 2
    assert "pip install huggingface_hub" in " ".join(err.split())
