"""Damaged, cut off and hostile files: a clear error, bounded memory, nothing of theirs run."""

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from draft_checkpoints import TINY_DRAFT, TINY_TARGET, tiny_draft, write_safetensors
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.draft import Level, examine, launch_arguments
from bench.draft.headers import read_header
from bench.draft.sources import Folder
from bench.errors import InputError


def header(entries, *, data=b"", length=None):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin=0, end=4, shape=(2,), dtype="BF16"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


HOSTILE = {
    "empty": b"",
    "too short": b"\x01\x02",
    "a header longer than the file": header({}, length=2**40),
    "a header of 2**63 bytes": header({}, length=2**63),
    "not JSON": header(b"\x00" * 64),
    "deeply nested": header(b"[" * 200_000),
    "nested in an entry": header(b'{"a":' + b"[" * 200_000 + b"}"),
    "a list": header(b"[1,2,3]"),
    "a number for an entry": header({"a": 1}),
    "cut off": header({"a": entry()}, data=b"123"),
    "bytes left over": header({"a": entry()}, data=b"12345"),
    "offsets outside": header({"a": entry(0, 2**50, (2**49,))}, data=b"1234"),
    "offsets backwards": header({"a": entry(4, 0)}, data=b"1234"),
    "negative offsets": header({"a": entry(-4, 0)}, data=b"1234"),
    "negative shape": header({"a": entry(shape=(-2,))}, data=b"1234"),
    "a shape that overflows": header({"a": entry(shape=(2**62, 2**62))}, data=b"1234"),
    "a shape of another size": header({"a": entry(shape=(3,))}, data=b"1234"),
    "an unknown type": header({"a": entry(dtype="OBJECT")}, data=b"1234"),
    "three offsets": header({"a": {**entry(), "data_offsets": [0, 4, 8]}}, data=b"1234"),
    "overlapping": header({"a": entry(), "b": entry(2, 6)}, data=b"123456"),
    "a gap": header({"a": entry(), "b": entry(6, 10)}, data=b"1" * 10),
    "a name that a terminal obeys": header({"\x1b[2J": entry()}, data=b"1234"),
    "a very long name": header({"a" * 10_000: entry()}, data=b"1234"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_draft().config))
    (tmp_path / "model.safetensors").write_bytes(HOSTILE[name])
    with pytest.raises(InputError) as refused:
        examine(str(tmp_path))
    assert "model.safetensors" in str(refused.value)
    assert refused.value.hint
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('the pickle was run')",))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "model.pt"])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_pickle_is_refused_and_not_run(name, zipped, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_draft().config))
    if zipped:
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Bomb()))
    else:
        (tmp_path / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="pickle"):
        examine(str(tmp_path))


def test_a_pointer_of_git_lfs_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(tiny_draft().config))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    (tmp_path / "model.safetensors").write_text(pointer)
    with pytest.raises(InputError, match="LFS"):
        examine(str(tmp_path))


INDICES = {
    "a file that is not there": {"weight_map": {"fc.weight": "other.safetensors"}},
    "a path out of the folder": {"weight_map": {"fc.weight": "../model.safetensors"}},
    "no map": {},
    "numbers": {"weight_map": {"fc.weight": 7}},
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_that_does_not_fit_is_refused(name, tmp_path):
    tiny_draft().write(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(INDICES[name]))
    with pytest.raises(InputError, match="does not fit"):
        examine(str(tmp_path))


CONFIGS = ["", "[]", "{", "[" * 100_000, '{"architectures": 7}' + " " * 2**25, "\ud800"]


@pytest.mark.parametrize("text", CONFIGS, ids=range(len(CONFIGS)))
def test_a_config_that_is_none_is_refused(text, tmp_path):
    tiny_draft().write(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(InputError):
        examine(str(tmp_path))


def test_what_is_no_checkpoint_is_refused(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        examine(str(tmp_path / "nothing"))
    with pytest.raises(InputError, match=r"config\.json"):
        examine(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="no weights"):
        examine(str(tmp_path))
    with pytest.raises(InputError, match="is a file"):
        examine(str(tmp_path / "config.json"))


def test_a_file_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    tiny_draft().write(tmp_path)
    opened = Path.open

    def forbidden(path, *arguments, **more):
        if path.suffix == ".safetensors":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(InputError, match="Permission denied"):
        examine(str(tmp_path))


def test_a_target_that_is_a_draft_is_refused():
    with pytest.raises(InputError, match="is itself a draft"):
        examine(str(TINY_DRAFT), target=str(TINY_DRAFT))


def test_a_model_that_is_no_draft_is_suspect_unless_it_is_to_draft_alone():
    alone = launch_arguments("--speculative-algorithm STANDALONE")
    eagle3 = launch_arguments("--speculative-algorithm EAGLE3 --speculative-num-steps 3")
    assert not examine(str(TINY_TARGET)).is_clean
    assert not examine(str(TINY_TARGET), launch=eagle3).is_clean
    assert "form" not in {
        finding.rule
        for finding in examine(str(TINY_TARGET), launch=alone).findings
        if finding.level is not Level.NOTE
    }


def test_shards_are_read_as_their_index_says(tmp_path):
    files = tiny_draft()
    tensors = list(files.tensors.items())
    files.tensors = {}
    files.write(tmp_path)
    parts = {"a.safetensors": tensors[:5], "b.safetensors": tensors[5:]}
    for name, part in parts.items():
        write_safetensors(tmp_path / name, dict(part))
    write_safetensors(tmp_path / "consolidated.safetensors", dict(tensors))
    mapped = {tensor: name for name, part in parts.items() for tensor, _ in part}
    index = json.dumps({"metadata": {}, "weight_map": mapped})
    (tmp_path / "model.safetensors.index.json").write_text(index)
    assert examine(str(tmp_path), target=str(TINY_TARGET)).findings == ()
    (tmp_path / "model.safetensors.index.json").unlink()
    twice = examine(str(tmp_path), target=str(TINY_TARGET))
    assert {finding.rule for finding in twice.findings} == {"M23"}


@settings(deadline=None, max_examples=100)
@given(
    at=st.integers(0, 1500),
    cut=st.none() | st.integers(0, 3000),
    byte=st.integers(0, 255),
)
def test_a_damaged_header_is_read_or_refused_and_nothing_else(at, cut, byte, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    raw = bytearray((TINY_DRAFT / "model.safetensors").read_bytes())
    raw[at] = byte
    (folder / "model.safetensors").write_bytes(raw[: len(raw) if cut is None else cut])
    (folder / "config.json").write_text(json.dumps(tiny_draft().config))
    error = None
    try:
        found = examine(str(folder), target=str(TINY_TARGET))
    except InputError as refused:
        error = refused
    if error is not None:
        assert str(error).isprintable()
        return
    assert found.case.loaded is not None
    assert cut is None


MEMORY = """
import resource, sys
from bench.draft.headers import read_header
from bench.draft.sources import Folder
from bench.errors import InputError
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read_header(Folder(__import__("pathlib").Path(sys.argv[1])), "model.safetensors")
except InputError:
    pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("kind", ["long", "many"])
def test_memory_is_bounded(kind, tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as file:
        if kind == "long":  # a header of 8 GiB in a file of 9 GiB, all of it a hole
            file.write((8 * 2**30).to_bytes(8, "little"))
            file.truncate(9 * 2**30)
        else:
            entries = b",".join(b'"%x":{}' % place for place in range(1_200_000))
            file.write(header(b"{" + entries + b"}"))
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    grown_mib = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown_mib < 500


def test_the_header_of_a_real_file_is_read_whole():
    tensors = read_header(Folder(TINY_TARGET), "model.safetensors")
    assert len(tensors) == 75
    assert sum(tensor.size_bytes for tensor in tensors) + tensors[0].offset_bytes == (
        (TINY_TARGET / "model.safetensors").stat().st_size
    )
