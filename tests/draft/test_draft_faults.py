"""Faults planted in the tiny pair, each named by its rule and by no other."""

import json

import numpy as np
import pytest
from draft_checkpoints import (
    CHOSEN,
    TINY_DRAFT,
    TINY_TARGET,
    llama_head,
    ones,
    reduced_draft,
    tiny_draft,
    tiny_target,
    whole_numbers,
)

from bench.draft import Level, examine, launch_arguments

ARGUMENTS = (
    "--model-path tiny-llama --speculative-algorithm EAGLE3 --speculative-draft-model-path d "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
)
IDS = "eagle_aux_hidden_state_layer_ids"


def rules_of(examined, *, notes=False):
    return {f.rule for f in examined.findings if notes or f.level is not Level.NOTE}


def planted(tmp_path, change, *, files=None, target=None, launch=None):
    files = files or tiny_draft()
    change(files)
    where = str(TINY_TARGET) if target is None else target.write(tmp_path / "target")
    return examine(
        files.write(tmp_path / "draft"),
        target=where,
        launch=None if launch is None else launch_arguments(launch),
    )


def nested(*ids, **more):
    return lambda files: files.config.update(eagle_config={IDS: list(ids), **more})


def healthy(_files):
    pass


def config(**values):
    return lambda files: files.config.update(values)


def without(*parts):
    def change(files):
        for name in [n for n in files.tensors if any(part in n for part in parts)]:
            del files.tensors[name]

    return change


def renamed(old, new):
    def change(files):
        files.tensors = {n.replace(old, new): t for n, t in files.tensors.items()}

    return change


def together(*changes):
    return lambda files: [change(files) for change in changes]


def added(name, tensor):
    return lambda files: files.tensors.update({name: tensor})


def second_layer(files):
    """A draft of two layers, the second named as speculators names it."""
    files.config["num_hidden_layers"] = 2
    for name, tensor in list(files.tensors.items()):
        if name.startswith("midlayer.") and "hidden_norm" not in name:
            copy = tensor
            if any(part in name for part in ("q_proj", "k_proj", "v_proj")):
                copy = ("BF16", (192, 192), bytes(192 * 192 * 2))
            files.tensors[name.replace("midlayer", "layers.1")] = copy


def trained_embedding(files):
    dtype, shape, data = tiny_target().tensors["model.embed_tokens.weight"]
    values = np.frombuffer(data, "<u2").copy()
    values[::3] ^= 0x0040  # the first bit of the mantissa
    files.tensors["embed_tokens.weight"] = (dtype, shape, values.tobytes())


FAULTS = {
    "M1 ids beside eagle_config": ("M1", config(**{IDS: [1, 2, 6]})),
    "M2 states' numbers on Llama": ("M2", nested(2, 4, 5)),
    "M5 ids that do not ascend": ("M5", nested(3, 1, 4)),
    "M5 ids that repeat": ("M5", nested(1, 3, 3)),
    "M7 aux states off": ("M7", nested(1, 3, 4, use_aux_hidden_state=False)),
    "M7 four ids, three trained": ("M7", nested(-1, 1, 3, 4)),
    "M7 one state, fc skipped": (
        "M7",
        together(nested(3), added("fc.weight", ones(192, 192))),
    ),
    "M8 absolute map": ("M8", healthy, {"files": "absolute"}),
    "M8 a map out of range": (
        "M8",
        added("d2t", whole_numbers([5000] * len(CHOSEN))),
        {"files": "offset"},
    ),
    "M8 absolute, no t2d": ("M8", without("t2d"), {"files": "absolute"}),
    "M9 no map": ("M9", without("d2t", "t2d"), {"files": "offset"}),
    "M9 a map of zeros": (
        "M9",
        together(without("t2d"), added("d2t", whole_numbers([0] * len(CHOSEN)))),
        {"files": "offset"},
    ),
    "M10 rows of the head": ("M10", config(draft_vocab_size=1024)),
    "M10 size not said": ("M10", lambda files: files.config.pop("draft_vocab_size")),
    "M10 another vocabulary": ("M10", config(vocab_size=4096)),
    "M11 norm_before_residual": ("M11", config(norm_before_residual=True)),
    "M12 norms of queries": (
        "M12",
        added("midlayer.self_attn.q_norm.weight", ones(64)),
    ),
    "M12 biases": ("M12", added("midlayer.self_attn.q_proj.bias", ones(192))),
    "M13 second layer": ("M13", second_layer),
    "M14 norms not turned on": ("M14", added("fc_norm.0.weight", ones(192))),
    "M14 norms not there": ("M14", config(fc_norm=True)),
    "M14 input_norm not turned on": ("M14", added("input_norm.weight", ones(576))),
    "M14b norm_output of SpecForge": ("M14b", config(norm_output=True)),
    "M16 tied": ("M16", config(tie_word_embeddings=True)),
    "M17 trained embedding": ("M17", trained_embedding),
    "M18 an empty width": ("M18", config(target_hidden_size=None)),
    "M23 fc missing": ("M23", without("fc.weight")),
    "M23 a prefix": ("M23", renamed("midlayer", "draft_model.midlayer")),
    "M23 a part that SGLang has not": ("M23", added("gate.weight", ones(4))),
    "M23 two tensors for one": ("M23", added("model.norm.weight", ones(192))),
    "M25 the last layer": ("M25", nested(1, 3, 7)),
    "E1 the embedding": ("E1", nested(0, 3, 4)),
    "form, another class": ("form", config(architectures=["Eagle3LlamaForCausalLM"])),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named(name, tmp_path):
    rule, change, *more = FAULTS[name]
    files = reduced_draft(more[0]["files"]) if more else None
    examined = planted(tmp_path, change, files=files)
    assert rules_of(examined) == {rule}
    for finding in examined.findings:
        assert all((finding.evidence, finding.consequence, finding.fix))
    assert not examined.is_clean


def test_there_are_enough_faults():
    assert len(FAULTS) >= 22


LAUNCHED = {
    "M6": ARGUMENTS.replace("EAGLE3", "EAGLE"),
    "M19": ARGUMENTS + "--quantization fp8",
    "M24": ARGUMENTS + "--speculative-draft-window-size 512",
}


@pytest.mark.parametrize("rule", LAUNCHED)
def test_a_fault_of_the_command_line_is_named(rule, tmp_path):
    examined = planted(tmp_path, healthy, launch=LAUNCHED[rule])
    assert rules_of(examined) == {rule}


@pytest.mark.parametrize(
    ("before", "level"),
    [("", Level.FAULT), ("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1 ", Level.SUSPECT)],
)
def test_positions_that_do_not_reach_are_a_fault_or_a_suspicion(before, level, tmp_path):
    change = config(max_position_embeddings=512)
    examined = planted(tmp_path, change, launch=before + ARGUMENTS + "--context-length 2048")
    assert [(f.rule, f.level) for f in examined.findings] == [("M22", level)]
    within = planted(tmp_path, change, launch=ARGUMENTS + "--context-length 512")
    assert within.is_clean


def test_positions_that_do_not_reach_are_a_note_while_the_launch_is_not_known(tmp_path):
    examined = planted(tmp_path, config(max_position_embeddings=512))
    assert [(f.rule, f.level) for f in examined.findings] == [("M22", Level.NOTE)]


def test_a_base_that_is_not_given_is_suspect_where_the_target_has_another(tmp_path):
    target = tiny_target()
    target.config["rope_parameters"]["rope_theta"] = 500000.0
    change = lambda files: files.config.pop("rope_parameters")
    assert rules_of(planted(tmp_path, change, target=target)) == {"M15"}
    assert rules_of(planted(tmp_path / "same", change)) == set()


def test_stretched_positions_of_the_target_are_suspect_in_a_short_draft(tmp_path):
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 2048}
    target = tiny_target()
    target.config["rope_parameters"] = {"rope_theta": 10000.0, **scaling}
    change = config(rope_parameters={"rope_theta": 10000.0, **scaling})
    assert "M15" in rules_of(planted(tmp_path, change, target=target))


def test_another_tokenizer_is_suspect(tmp_path):
    files = tiny_draft()
    files.others["tokenizer.json"] = json.dumps({"model": {}})
    assert rules_of(planted(tmp_path, healthy, files=files)) == {"M21"}
    files.others["tokenizer.json"] = (TINY_TARGET / "tokenizer.json").read_text()
    assert rules_of(planted(tmp_path / "same", healthy, files=files)) == set()


def test_another_chat_template_is_noted_wherever_it_is_kept(tmp_path):
    theirs = (TINY_TARGET / "chat_template.jinja").read_text()
    for kept, text in {
        "chat_template.jinja": lambda template: template,
        "tokenizer_config.json": lambda template: json.dumps({"chat_template": template}),
    }.items():
        files = tiny_draft()
        files.others[kept] = text("{{ messages }}")
        found = planted(tmp_path / f"other {kept}", healthy, files=files).findings
        assert [(finding.rule, finding.level) for finding in found] == [("M20", Level.NOTE)]
        files.others[kept] = text(theirs)
        assert planted(tmp_path / f"same {kept}", healthy, files=files).findings == ()


def test_a_draft_of_its_own_width_needs_its_embedding(tmp_path):
    sizes = {"hidden": 128, "inter": 256, "heads": 2, "kv": 2, "head_dim": 64, "vocab": 2048}
    files = tiny_draft()
    files.config |= {
        "hidden_size": 128,
        "target_hidden_size": 192,
        "intermediate_size": 256,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    files.tensors = llama_head(**sizes, rows=2048, maps=False)
    files.tensors["fc.weight"] = ("BF16", (128, 3 * 192), None)
    assert rules_of(planted(tmp_path, healthy, files=files)) == {"M18"}
    embedding = added("embed_tokens.weight", ("BF16", (2048, 128), None))
    assert rules_of(planted(tmp_path / "with", embedding, files=files)) == set()


def test_a_draft_for_a_wider_target_is_a_fault(tmp_path):
    target = tiny_target()
    target.config["hidden_size"] = 256
    target.tensors = {}
    assert "M18" in rules_of(planted(tmp_path, healthy, target=target))


def test_the_healthy_pair_is_clean_in_every_form(tmp_path):
    launch = launch_arguments(ARGUMENTS + "--context-length 2048")
    assert examine(str(TINY_DRAFT), target=str(TINY_TARGET)).findings == ()
    assert examine(str(TINY_DRAFT), target=str(TINY_TARGET), launch=launch).findings == ()
    for name, change in {
        "named ids": nested(1, 3, 4),
        "flat names": renamed("midlayer", "layers.0"),
        "model prefix": renamed("midlayer", "model.layers.0"),
        "own embedding, the same": added(
            "embed_tokens.weight", tiny_target().tensors["model.embed_tokens.weight"]
        ),
    }.items():
        assert planted(tmp_path / name, change).findings == (), name
    reduced = planted(tmp_path / "reduced", healthy, files=reduced_draft())
    assert reduced.findings == ()
    assert reduced.case.vocabulary.is_proved
    unproved = planted(tmp_path / "unproved", without("t2d"), files=reduced_draft())
    assert unproved.findings == ()


def test_ids_at_the_top_that_are_the_default_are_a_note(tmp_path):
    for ids in ([2, 4, 5], [1, 3, 4]):
        examined = planted(tmp_path / str(ids), config(**{IDS: ids}))
        assert [(f.rule, f.level) for f in examined.findings] == [("M1", Level.NOTE)]


def test_the_drawing_has_the_shapes(tmp_path):
    drawn = "\n".join(examine(str(TINY_DRAFT), target=str(TINY_TARGET)).flow)
    for part in (
        "layers 1, 3, 4",
        "[n, 3×192=576] -> fc [192, 576] -> [n, 192]",
        "[n, 384] -> layer 0 -> [n, 192]",
        "[n, 2048]",
        "steps 2…: the draft's own [n, 192]",
    ):
        assert part in drawn
    one = planted(tmp_path, together(nested(3), added("fc.weight", ones(192, 192))))
    assert "fc is skipped" in "\n".join(one.flow)
    mapped = planted(tmp_path / "mapped", healthy, files=reduced_draft())
    assert f"[n, {len(CHOSEN)}] -> i + d2t[i]" in "\n".join(mapped.flow)
