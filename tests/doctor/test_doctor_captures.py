"""Captures in every form they come in, asked of a server, and compared with a trainer's."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from draft_checkpoints import write_safetensors
from feeding_server import Feeding
from tiny_target import TINY_DRAFT, TINY_TARGET, states_of

from bench.cli import main
from bench.doctor.captures import read_captures
from bench.errors import InputError

WIDTH, SLOTS, TOKENS = 16, 3, 10
DRAWS = np.random.default_rng(7)
IDS = DRAWS.integers(0, 99, TOKENS)
AUX = DRAWS.normal(size=(TOKENS, SLOTS, WIDTH)).astype(np.float32)
LAST = DRAWS.normal(size=(TOKENS, 1, WIDTH)).astype(np.float32)
TEXTS = json.loads(Path(__file__).with_name("tiny_texts.json").read_text())[1:4]


def tensor(values):
    dtype = {"i": "I64", "f": "F32"}[values.dtype.kind]
    return (dtype, values.shape, values.tobytes())


class Tensor:
    """As much of torch.Tensor as a reader needs."""

    def __init__(self, values):
        self.values = values

    def is_floating_point(self):
        return self.values.dtype.kind == "f"

    def float(self):
        return Tensor(self.values.astype(np.float32))

    def numpy(self):
        return self.values


@pytest.fixture
def torch(monkeypatch):
    """A torch that loads what a test put there, and only tensors."""
    files = {}

    def load(path, *, map_location, weights_only):
        assert weights_only is True
        assert map_location == "cpu"
        if path.name not in files:
            raise RuntimeError("Weights only load failed: GLOBAL os.system")
        return files[path.name]

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(load=load))
    return files


def held(folder):
    (sample,) = read_captures(str(folder), hidden=WIDTH)
    assert np.array_equal(sample.token_ids, IDS)
    assert sample.states.dtype == np.float32
    return sample.states


def test_speculators_safetensors_are_read(tmp_path):
    states = np.concatenate([AUX, LAST], axis=1)
    write_safetensors(
        tmp_path / "data_0.safetensors",
        {"token_ids": tensor(IDS), "hidden_states": tensor(states)},
    )
    assert np.array_equal(held(tmp_path), states)


def test_speculators_older_files_are_read(torch, tmp_path):
    """A list of [n, width], one for each captured layer and the last."""
    parts = [Tensor(AUX[:, slot].astype(np.float16)) for slot in range(SLOTS)]
    (tmp_path / "data_0.pt").write_bytes(b"-")
    torch["data_0.pt"] = {"input_ids": Tensor(IDS), "hidden_states": parts, "loss_mask": None}
    assert held(tmp_path) == pytest.approx(AUX, abs=1e-2)


def test_specforges_files_are_read(torch, tmp_path):
    (tmp_path / "rows_0-5000").mkdir()
    (tmp_path / "rows_0-5000" / "data_0.ckpt").write_bytes(b"-")
    torch["data_0.ckpt"] = {
        "input_ids": Tensor(IDS),
        "loss_mask": Tensor(np.ones(TOKENS, np.int64)),
        "aux_hidden_state": Tensor(AUX.reshape(1, TOKENS, SLOTS * WIDTH)),
        "hidden_state": Tensor(LAST.reshape(1, TOKENS, WIDTH)),
    }
    assert np.array_equal(held(tmp_path), np.concatenate([AUX, LAST], axis=1))


def test_flat_states_are_cut_into_slots(tmp_path):
    flat = {"input_ids": tensor(IDS), "hidden_states": tensor(AUX.reshape(TOKENS, -1))}
    write_safetensors(tmp_path / "a.safetensors", flat)
    assert np.array_equal(held(tmp_path), AUX)


def test_a_pickle_with_more_than_tensors_is_refused(torch, tmp_path):
    (tmp_path / "bomb.pt").write_bytes(b"-")
    with pytest.raises(InputError, match="cannot be read as tensors alone"):
        read_captures(str(tmp_path), hidden=WIDTH)
    (tmp_path / "bomb.pt").rename(tmp_path / "list.pt")
    torch["list.pt"] = [1]
    with pytest.raises(InputError, match="no dictionary"):
        read_captures(str(tmp_path), hidden=WIDTH)


def test_without_torch_its_files_are_not_read(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "data_0.ckpt").write_bytes(b"-")
    with pytest.raises(InputError, match="takes torch") as refused:
        read_captures(str(tmp_path), hidden=WIDTH)
    assert "specdyno[draft]" in refused.value.hint


STATES = tensor(AUX)
WRONG = {
    "no token ids": ({"hidden_states": STATES}, "no input_ids"),
    "no states": ({"input_ids": tensor(IDS)}, "wanted hidden states"),
    "another width": (
        {"input_ids": tensor(IDS), "states": tensor(AUX[:, :, :15].copy())},
        "wanted hidden states",
    ),
    "fewer tokens than states": (
        {"input_ids": tensor(IDS[:-1]), "states": STATES},
        "9 token ids and 10 states",
    ),
    "too short": (
        {"input_ids": tensor(IDS[:4]), "states": tensor(AUX[:4])},
        "4 token ids",
    ),
    "states that overflowed": (
        {"input_ids": tensor(IDS), "states": tensor(np.full_like(AUX, np.inf))},
        "no finite numbers",
    ),
    "token ids that are none": (
        {"input_ids": tensor(IDS.astype(np.float32)), "states": STATES},
        "token ids",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_capture_is_told(name, tmp_path):
    tensors, said = WRONG[name]
    write_safetensors(tmp_path / "a.safetensors", tensors)
    with pytest.raises(InputError, match=said):
        read_captures(str(tmp_path), hidden=WIDTH)


def test_a_folder_of_two_captures_is_told(tmp_path):
    for name, states in (("a", AUX), ("b", AUX[:, :2].copy())):
        write_safetensors(
            tmp_path / f"{name}.safetensors", {"input_ids": tensor(IDS), "states": tensor(states)}
        )
    with pytest.raises(InputError, match="different shapes"):
        read_captures(str(tmp_path), hidden=WIDTH)


# ------------------------------------------------------------------------- asked of a server


@pytest.fixture
def doctor(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["bench", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    return run


def feeding(*numbers, ids=None, **more):
    def states(tokens):
        found = states_of(np.array(tokens))[:, list(numbers)]
        return found.reshape(len(tokens), -1)

    return Feeding(
        states,
        writes=lambda text: (TEXTS[len(text) % 3], 8),
        return_aux_hidden_state_layer_ids=ids,
        **more,
    )


def test_what_a_server_feeds_is_captured_and_fits_the_draft(doctor, tmp_path):
    with feeding(2, 4, 5).serving() as url:
        code, out, err = doctor("capture", url, tmp_path / "c", "--target", TINY_TARGET)
    assert (code, err) == (0, "")
    assert "8 sequences, states [2, 4, 5]" in out
    code, out, _ = doctor(
        "wiring", TINY_DRAFT, "--captures", tmp_path / "c", "--target", TINY_TARGET, "--json"
    )
    told = json.loads(out)
    assert (code, told["states"], told["fix"]) == (0, [2, 4, 5], None)
    assert told["served"]["accept_len_tok"] > 2.4


def trainers(folder, *numbers, shift=0, place=None):
    """A trainer's captures in speculators' form: the states, and the last one."""
    folder.mkdir()
    for number, ids in enumerate(TEXTS):
        states = np.roll(states_of(np.array(ids)), -shift, axis=0)[:, [*numbers, 8]]
        if place is not None:
            states[:, place] = DRAWS.normal(size=states[:, place].shape)
        found = {"token_ids": tensor(np.array(ids)), "hidden_states": tensor(states)}
        write_safetensors(folder / f"data_{number}.safetensors", found)
    return folder


def compared(doctor, tmp_path, trained, server):
    """The trainer's captures beside what the server feeds for the same token ids."""
    with server.serving() as url:
        code, _, err = doctor(
            *("capture", url, tmp_path / "served", "--target", TINY_TARGET),
            *("--tokens", trained),
        )
    assert (code, err) == (0, "")
    code, out, _ = doctor(
        *("wiring", TINY_DRAFT, "--captures", trained, "--target", TINY_TARGET),
        *("--served", tmp_path / "served", "--json"),
    )
    return code, json.loads(out)


def test_a_trainers_slots_are_named_by_the_servers_states(doctor, tmp_path):
    trained = trainers(tmp_path / "t", 3, 4, 5)
    server = feeding(1, 2, 3, 4, 5, 6, 7, ids=[0, 1, 2, 3, 4, 5, 6])
    code, told = compared(doctor, tmp_path, trained, server)
    assert [slot["state"] for slot in told["slots"]] == [3, 4, 5, None]
    # SGLang would feed 2, 4, 5, which the trainer's captures do not hold.
    assert (code, told["side"]["wrong"]) == (4, "trainer")
    assert "[3, 4, 5, ?]" in told["side"]["text"]


def test_a_trainer_that_holds_what_is_served_is_right(doctor, tmp_path):
    code, told = compared(doctor, tmp_path, trainers(tmp_path / "t", 2, 4, 5), feeding(2, 4, 5))
    assert [slot["state"] for slot in told["slots"]] == [2, 4, 5, None]  # the last is cut off
    assert (code, told["side"]["wrong"], told["states"]) == (0, "neither", [2, 4, 5, -1])


def test_a_state_that_is_none_of_the_servers_is_told(doctor, tmp_path):
    trained = trainers(tmp_path / "t", 2, 4, 5, place=1)
    code, told = compared(doctor, tmp_path, trained, feeding(2, 4, 5))
    assert code == 4
    assert told["side"]["wrong"] == "trainer"
    assert "slot 1 of its captures is none" in told["side"]["text"]


def test_states_that_are_fed_and_were_not_captured_are_asked_for(doctor, tmp_path):
    trained = trainers(tmp_path / "t", 3, 4, 6)
    code, told = compared(doctor, tmp_path, trained, feeding(2, 3, 4, 5, 6, ids=[1, 2, 3, 4, 5]))
    assert (code, told["states"]) == (4, [2, 3, 4, 5, 6])  # the server's hold what is fed
    with feeding(3, 4, 6, ids=[2, 3, 5]).serving() as url:
        doctor("capture", url, tmp_path / "few", "--target", TINY_TARGET)
    code, _, err = doctor(
        *("wiring", TINY_DRAFT, "--captures", tmp_path / "few", "--target", TINY_TARGET)
    )
    assert code == 2
    assert "feeds states [2, 4, 5]" in err
    assert "--return-aux-hidden-state-layer-ids" in err


def test_states_of_another_token_are_told(doctor, tmp_path):
    trained = trainers(tmp_path / "t", 2, 4, 5, shift=1)
    code, told = compared(doctor, tmp_path, trained, feeding(2, 4, 5))
    assert (code, told["side"]["wrong"]) == (4, "trainer")
    assert "the server's state of token i +1" in told["side"]["text"]
    assert [(slot["state"], slot["shift"]) for slot in told["slots"]][:3] == [
        (2, 1),
        (4, 1),
        (5, 1),
    ]


def test_the_token_ids_sent_are_the_trainers(doctor, tmp_path):
    trained = trainers(tmp_path / "t", 2, 4, 5)
    server = feeding(2, 4, 5)
    with server.serving() as url:
        doctor("capture", url, tmp_path / "s", "--target", TINY_TARGET, "--tokens", trained)
    assert [body["input_ids"] for body in server.asked] == TEXTS


def test_a_server_that_hides_states_is_told(doctor, tmp_path):
    server = feeding(2, 4, 5)
    server.keeps = 5
    with server.serving() as url:
        code, _, err = doctor("capture", url, tmp_path / "c", "--target", TINY_TARGET)
    assert code == 3
    assert "--disable-radix-cache" in err
    assert not (tmp_path / "c").exists()


def test_a_folder_that_is_there_is_not_written_to(doctor, tmp_path):
    server = feeding(2, 4, 5)
    with server.serving() as url:
        code, _, err = doctor("capture", url, tmp_path, "--target", TINY_TARGET)
    assert (code, "is there already" in err, server.asked) == (2, True, [])


def test_a_server_with_a_draft_is_a_mistake(doctor, tmp_path):
    with feeding(2, enable_return_aux_hidden_states=False).serving() as url:
        code, _, err = doctor("capture", url, tmp_path / "c")
    assert code == 2
    assert "--enable-return-aux-hidden-states" in err


def test_layers_of_another_class_count_otherwise(doctor, tmp_path):
    server = feeding(2, 4, 5, ids=[2, 4, 5], architecture="DeepseekV3ForCausalLM")
    with server.serving() as url:
        _, out, _ = doctor("capture", url, tmp_path / "c", "--target", TINY_TARGET)
    assert "states [2, 4, 5]" in out
