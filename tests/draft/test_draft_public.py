"""No false alarm on drafts as they are published, and the faults of DeepSeek's class."""

import pytest
from draft_checkpoints import Files
from public_drafts import (
    IDS,
    KIMI,
    PUBLIC,
    aq_medai_kimi_k2,
    lightseek_kimi_mla,
    speculators_llama,
)

from bench.draft import Level, examine, launch_arguments


def examined(files, target, tmp_path, launch=None):
    return examine(
        files.write(tmp_path / "draft"),
        target=Files(target).write(tmp_path / "target"),
        launch=None if launch is None else launch_arguments(launch),
    )


def alarms(found):
    return {finding.rule for finding in found.findings if finding.level is not Level.NOTE}


@pytest.mark.parametrize("name", PUBLIC)
def test_no_false_alarm_on_a_public_draft(name, tmp_path):
    files, target = PUBLIC[name]()
    found = examined(files, target, tmp_path)
    # SGLang cannot read speculators' form: that alarm is true, and the only one.
    assert alarms(found) == ({"form"} if name == "speculators" else set())
    assert found.flow
    if name != "speculators":
        assert not found.case.loaded.dropped
        served = (
            "python3 -m sglang.launch_server --model-path /nowhere --context-length 2048 "
            "--speculative-algorithm EAGLE3 --speculative-draft-model-path x "
            "--speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4 --tp-size 8"
        )
        assert alarms(examined(files, target, tmp_path / "served", served)) == set()


def test_what_is_captured_depends_on_the_targets_class(tmp_path):
    files, target = PUBLIC["lmsys"]()
    assert examined(files, target, tmp_path / "1").case.captured.states == (2, 47, 91)
    files, target = PUBLIC["AQ-MedAI"]()
    assert examined(files, target, tmp_path / "2").case.captured.states == (2, 30, 58)


KIMI_IDS = {
    (1, 29, 57): (set(), (2, 30, 58)),
    (2, 30, 58): (set(), (2, 30, 58)),
    (3, 29, 57): ({"M3"}, (3, 29, 57)),
    (0, 29, 57): ({"M3", "E1"}, (0, 29, 57)),
    (1, 30, 58): ({"M4"}, (2, 31, 59)),
    (0, 30, 58): ({"E1"}, (0, 30, 58)),
    (2, 30, 61): ({"M25"}, (2, 30)),
}


@pytest.mark.parametrize("ids", KIMI_IDS)
@pytest.mark.parametrize("make", [aq_medai_kimi_k2, lightseek_kimi_mla])
def test_ids_on_kimi(ids, make, tmp_path):
    files, target = make()
    files.config["eagle_config"][IDS] = list(ids)
    found = examined(files, target, tmp_path)
    assert (alarms(found), found.case.captured.states) == KIMI_IDS[ids]


def test_ids_of_speculators_are_suspect_on_both_classes(tmp_path):
    """A draft flattened by hand keeps keys of speculators, whose ids are states' numbers."""
    files, target = PUBLIC["lmsys"]()
    files.config |= {"norm_before_residual": False, IDS: [5, 20, 80]}
    files.config["eagle_config"][IDS] = [5, 20, 80]
    assert alarms(examined(files, target, tmp_path / "+1")) == {"M2"}
    files.config["eagle_config"][IDS] = [4, 19, 79]
    assert alarms(examined(files, target, tmp_path / "converted")) == set()
    files, target = aq_medai_kimi_k2()
    files.config["norm_before_residual"] = False
    files.config["eagle_config"][IDS] = [1, 20, 50]
    assert alarms(examined(files, target, tmp_path / "kimi")) == {"M4"}


def test_a_target_that_gives_no_states_is_a_fault(tmp_path):
    files, target = aq_medai_kimi_k2()
    refused = {**target, "architectures": ["MixtralForCausalLM"]}
    assert alarms(examined(files, refused, tmp_path / "1")) == {"capture"}
    unknown = {**target, "architectures": ["NobodysForCausalLM"]}
    found = examined(files, unknown, tmp_path / "2")
    assert alarms(found) == set()
    assert {f.rule for f in found.findings} == {"capture"}


def test_a_head_in_another_class_is_a_fault(tmp_path):
    files, target = PUBLIC["yuhuili"]()
    files.config["architectures"] = ["LlamaForCausalLM"]
    assert alarms(examined(files, target, tmp_path)) == {"form"}


def mtp_layer(*, layers=61, without=()):
    names = ("eh_proj", "enorm", "hnorm", "shared_head.norm", "self_attn.o_proj")
    return {
        f"model.layers.{layers}.{name}.weight": (
            "BF16",
            (8, 16) if name == "eh_proj" else (8,),
            None,
        )
        for name in names
        if name not in without
    }


def test_a_multi_token_layer_is_examined(tmp_path):
    config = {**KIMI, "num_nextn_predict_layers": 1, "hidden_size": 8}
    whole = examined(Files(config, mtp_layer()), config, tmp_path / "1")
    assert (whole.case.draft.form, whole.findings) == ("mtp", ())
    assert whole.flow
    part = Files(config, mtp_layer(without={"enorm"}))
    assert alarms(examined(part, config, tmp_path / "2")) == {"M23"}
    unsaid = Files({**config, "num_nextn_predict_layers": 0}, mtp_layer())
    assert alarms(examined(unsaid, config, tmp_path / "3")) == {"form"}
    eagle3 = "--speculative-algorithm EAGLE3 --speculative-num-steps 3 --speculative-eagle-topk 1"
    whole = Files(config, mtp_layer())
    assert "M6" in alarms(examined(whole, config, tmp_path / "4", eagle3))


def test_speculators_faults_are_told_before_conversion(tmp_path):
    files, target = speculators_llama(norm_before_residual=True)
    assert alarms(examined(files, target, tmp_path / "1")) == {"form", "M11"}
    files, target = speculators_llama()
    files.tensors["layers.0.self_attn.q_norm.weight"] = ("F32", (128,), None)
    assert alarms(examined(files, target, tmp_path / "2")) == {"form", "M12"}
