"""From speculators' form to SGLang's, bit for bit, and back; what cannot be is refused."""

import json

import numpy as np
import pytest
from draft_checkpoints import (
    CHOSEN,
    TINY_TARGET,
    Files,
    as_speculators,
    ones,
    read,
    reduced_draft,
    tiny_draft,
    tiny_target,
)
from public_drafts import KIMI, speculators_llama

from bench.draft import convert, examine
from bench.draft.checkpoint import read_checkpoint
from bench.draft.converting import plan_conversion, require_same
from bench.errors import DiskError, InputError

IDS = "eagle_aux_hidden_state_layer_ids"


def test_a_converted_draft_is_the_same_bit_for_bit_and_clean(tmp_path):
    files = as_speculators(reduced_draft(), **{IDS: [2, 4, 5]})
    source = files.write(tmp_path / "src")
    made = convert(source, str(tmp_path / "dst"), target=str(TINY_TARGET))
    written = read(tmp_path / "dst")
    assert written.tensors == files.tensors
    assert written.config["eagle_config"][IDS] == [1, 3, 4]
    assert (made.dropped, made.notes) == ((), ())
    found = examine(str(tmp_path / "dst"), target=str(TINY_TARGET))
    assert (found.findings, found.case.captured.states) == ((), (2, 4, 5))
    assert sorted(p.name for p in (tmp_path / "dst").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert {p.name for p in tmp_path.iterdir()} == {"src", "dst"}


def test_a_published_draft_is_converted_by_its_own_config(tmp_path):
    files, _ = speculators_llama(**{IDS: [2, 16, 29]})
    files.tensors["verifier_norm.weight"] = ("F32", (4096,), None)
    conversion = plan_conversion(read_checkpoint(files.write(tmp_path / "src")))
    config = conversion.converted.checkpoint.config
    assert config["eagle_config"][IDS] == [1, 15, 28]
    # speculators leaves out what is at LlamaConfig's defaults; SGLang's own checks read the file.
    assert (config["hidden_size"], config["num_attention_heads"]) == (4096, 32)
    assert config["rope_theta"] == 500000.0
    assert conversion.dropped == ("verifier_norm.weight",)
    assert "verifier_norm.weight" not in conversion.names


def test_default_layers_stay_the_default(tmp_path):
    source = as_speculators(tiny_draft()).write(tmp_path / "src")
    convert(source, str(tmp_path / "dst"))
    assert IDS not in read(tmp_path / "dst").config["eagle_config"]
    assert examine(str(tmp_path / "dst"), target=str(TINY_TARGET)).findings == ()


@pytest.mark.parametrize("states", [[1, 30, 58], [2, 30, 58], [0, 30, 58], [0, 1, 58]])
def test_layers_are_expressed_as_kimis_class_counts_them(states, tmp_path):
    verifier = {"verifier": {"architectures": ["DeepseekV3ForCausalLM"]}}
    files, _ = speculators_llama(**{IDS: states}, speculators_config=verifier)
    source = files.write(tmp_path / "src")
    made = plan_conversion(read_checkpoint(source)).converted.checkpoint
    target = Files({**KIMI, "hidden_size": 4096, "vocab_size": 128256}).write(tmp_path / "kimi")
    (tmp_path / "dst").mkdir()
    (tmp_path / "dst" / "model.safetensors").symlink_to(tmp_path / "src" / "model.safetensors")
    (tmp_path / "dst" / "config.json").write_text(json.dumps(made.config))
    found = examine(str(tmp_path / "dst"), target=target)
    assert list(found.case.captured.states) == states
    assert found.is_clean


def test_a_later_layers_norm_is_renamed(tmp_path):
    files = as_speculators(tiny_draft())
    files.config["transformer_layer_config"]["num_hidden_layers"] = 2
    for name, (dtype, shape, data) in list(files.tensors.items()):
        if name.startswith("layers.0.") and "hidden_norm" not in name:
            is_wide = name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            own = (192, 192) if is_wide else shape
            later = (dtype, own, data[: int(np.prod(own)) * 2])
            files.tensors[name.replace("layers.0", "layers.1")] = later
    source = files.write(tmp_path / "src")
    convert(source, str(tmp_path / "dst"))
    written = read(tmp_path / "dst").tensors
    old = files.tensors["layers.1.input_layernorm.weight"]
    assert written["layers.1.hidden_norm.weight"] == old
    assert "layers.1.input_layernorm.weight" not in written
    assert examine(str(tmp_path / "dst"), target=str(TINY_TARGET)).findings == ()


def biased(files):
    files.tensors["layers.0.self_attn.q_proj.bias"] = ones(192)


def qwen3(files):
    files.config["transformer_layer_config"]["model_type"] = "qwen3"
    files.tensors["layers.0.self_attn.q_norm.weight"] = ones(64)


def absolute(files):
    values = np.asarray(CHOSEN, "<i8")
    files.tensors["d2t"] = ("I64", values.shape, values.tobytes())


REFUSED = {
    "M11": lambda files: files.config.update(norm_before_residual=True),
    "M12": qwen3,
    "M12 biases": biased,
    "M14": lambda files: files.tensors.update({"fc_norm.0.weight": ones(192)}),
    "M17": lambda files: (
        files.config.update(embed_requires_grad=True),
        files.tensors.update(
            {"embed_tokens.weight": tiny_target().tensors["model.embed_tokens.weight"]}
        ),
    ),
    "M8": absolute,
    "M23": lambda files: files.tensors.pop("fc.weight"),
    "M7": lambda files: files.config.update({IDS: [0, 2, 4, 5]}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_expressed_is_refused_with_the_reason(name, tmp_path):
    files = as_speculators(reduced_draft())
    REFUSED[name](files)
    source = files.write(tmp_path / "src")
    with pytest.raises(InputError) as refused:
        convert(source, str(tmp_path / "dst"), target=str(TINY_TARGET))
    assert f"\n{name.split()[0]}: " in str(refused.value)
    assert {p.name for p in tmp_path.iterdir()} == {"src"}


def test_what_is_asked_wrongly_is_refused(tmp_path):
    source = as_speculators(tiny_draft(), **{IDS: [2, 4, 5]})
    source.config.pop("speculators_config")
    with pytest.raises(InputError, match="depends on the target"):
        convert(source.write(tmp_path / "src"), str(tmp_path / "dst"))
    with pytest.raises(InputError, match="not in speculators' form"):
        convert(tiny_draft().write(tmp_path / "sglang"), str(tmp_path / "dst"))
    source.config[IDS] = [5, 2, 4]
    with pytest.raises(InputError, match="in that order"):
        convert(source.write(tmp_path / "src"), str(tmp_path / "dst"), target=str(TINY_TARGET))
    source.config[IDS] = [2, 4, 5]
    (tmp_path / "dst").mkdir()
    with pytest.raises(InputError, match="there already"):
        convert(source.write(tmp_path / "src"), str(tmp_path / "dst"), target=str(TINY_TARGET))


def test_a_bit_that_differs_is_seen_on_the_way_back(tmp_path):
    files = as_speculators(tiny_draft())
    conversion = plan_conversion(read_checkpoint(files.write(tmp_path / "src")))
    convert(str(tmp_path / "src"), str(tmp_path / "dst"))
    require_same(conversion, read_checkpoint(str(tmp_path / "dst")))
    path = tmp_path / "dst" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(DiskError, match="is not what"):
        require_same(conversion, read_checkpoint(str(tmp_path / "dst")))
