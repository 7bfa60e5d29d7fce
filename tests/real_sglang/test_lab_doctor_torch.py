"""Captures that torch itself wrote, read by the doctor in an environment that has torch."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CODE = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from pathlib import Path
from bench.doctor.captures import read_captures
from bench.errors import InputError

folder = Path(sys.argv[2])
ids, aux, last = torch.arange(10), torch.randn(1, 10, 48).bfloat16(), torch.randn(1, 10, 16)
forms = {
    "specforge.ckpt": {"aux_hidden_state": aux, "hidden_state": last, "loss_mask": ids},
    "speculators.pt": {"hidden_states": [*aux.reshape(10, 3, 16).unbind(1), last[0].bfloat16()]},
}
for name, states in forms.items():
    torch.save({"input_ids": ids, **states}, folder / name)
    (sample,) = read_captures(str(folder), hidden=16)
    assert sample.token_ids.tolist() == ids.tolist()
    assert sample.states.shape == (10, 4, 16)
    assert torch.equal(torch.tensor(sample.states[:, :3]), aux.float().reshape(10, 3, 16))
    (folder / name).unlink()


class Bomb:
    def __reduce__(self):
        return (exec, ("print('the pickle was run')",))


torch.save({"input_ids": Bomb()}, folder / "bomb.pt")
try:
    read_captures(str(folder), hidden=16)
except InputError as error:
    print(str(error).isprintable(), "cannot be read as tensors alone" in str(error))
"""


def test_what_torch_saved_is_read_and_nothing_of_it_is_run(lab, tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "tests" / "lab" / "python.py", "-c", CODE, ROOT, tmp_path],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True\n"
