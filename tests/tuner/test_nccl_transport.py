"""Which way messages go, what SGLang sets, and which settings are worth ranking."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.errors import InputError, ScenarioError
from bench.scenario import load_scenario
from bench.sglang.arguments import Known, ModelFacts, parse_arguments
from tuner.nccl import Comms, Draft, Widths, nccl_question, steps_of, where_nccl_matters
from tuner.nccl.engine import engine_variables, environment_of_server, overwritten
from tuner.nccl.settings import MOST_SETTINGS, built_in_settings, choose_settings
from tuner.nccl.transport import comms_of, transport_of
from tuner.space import Tune

KIMI = "KimiK25ForConditionalGeneration"
LLAMA = "LlamaForCausalLM"
H200 = Comms(tp=8, gpu="hopper", nvlink=True, architecture=KIMI)
RTX = Comms(tp=8, gpu="sm120", nvlink=False, architecture=KIMI)
WIDTHS = Widths(hidden=7168, layers=61, draft_hidden=7168, draft_layers=1)
CHAIN = Draft(algorithm="EAGLE3", num_steps=3, topk=1, num_draft_tokens=4)
STEPS = steps_of(WIDTHS, [Draft(), CHAIN], {"1": 1, "64": 64})
DECODE = STEPS[0].messages[0]
DRAFTING = STEPS[1].messages[-1]
PREFILL = replace(DECODE, kind="prefill", rows=8192, message_bytes=8192 * 14336)


def way(comms, message=DECODE):
    taken = transport_of(message, comms)
    assert taken.reason
    return taken.transport, taken.nccl


@pytest.mark.parametrize(
    ("comms", "message", "expected"),
    [
        (replace(H200, tp=1), DECODE, ("none", False)),
        (replace(H200, gpu="cpu"), DECODE, ("cpu", False)),
        (H200, DECODE, ("flashinfer", False)),
        (H200, DRAFTING, ("custom", False)),  # the draft's layers do not fuse
        (H200, PREFILL, ("nccl", True)),  # beyond 2048 tokens and 16 MiB
        (replace(H200, fusion=False), DECODE, ("custom", False)),
        (replace(H200, architecture=LLAMA), DECODE, ("custom", False)),
        (replace(H200, architecture=LLAMA, fusion=True), DECODE, ("flashinfer", False)),
        (replace(H200, fusion=False, custom=False), DECODE, ("nccl", True)),
        (replace(H200, fusion=False, tp=16), DECODE, ("nccl", True)),
        (replace(H200, nodes=2), DECODE, ("nccl", True)),
        (replace(H200, nodes=2, gpu="sm100"), DECODE, ("flashinfer", False)),
        (replace(H200, fusion=False, custom_v2=False, tp=5), DECODE, ("nccl", True)),
        (replace(H200, fusion=False, custom=False, symm_mem=True), DECODE,
         ("nccl_symmetric", True)),
        (replace(H200, fusion=False, symm_mem=True), DECODE, ("custom", False)),
        (replace(H200, fusion=False, custom=False, torch_symm_mem=True), DECODE,
         ("torch_symm_mem", False)),
        (replace(H200, mscclpp=True, fusion=False), DECODE, ("mscclpp", None)),
        (replace(H200, reduces_whole=False), DECODE, ("nccl", None)),
        (RTX, DECODE, ("nccl", True)),
        (replace(RTX, tp=2), DECODE, ("custom", False)),
        (replace(RTX, tp=2), PREFILL, ("nccl", True)),
        (replace(RTX, torch_symm_mem=True), DECODE, ("nccl", True)),
        (replace(RTX, pcie_ipc=True), DECODE, ("pcie_ipc", False)),
        (replace(RTX, pcie_ipc=True, pcie_ipc_rows=256), PREFILL, ("nccl", True)),
        (replace(RTX, pcie_ipc=True, deterministic=True, custom=False), DECODE, ("nccl", True)),
        (replace(RTX, gpu=None, nvlink=None), DECODE, ("unknown", None)),
        (replace(RTX, gpu="hopper", nvlink=None, fusion=False), DECODE, ("unknown", None)),
    ],
)  # fmt: skip
def test_who_takes_a_message(comms, message, expected):
    assert way(comms, message) == expected


def test_where_nccl_matters_tells_steps_apart():
    assert [step.matters for step in where_nccl_matters(STEPS, RTX)] == [True] * 4
    assert [step.matters for step in where_nccl_matters(STEPS, H200)] == [False] * 4
    [only] = where_nccl_matters([replace(STEPS[0], messages=(DECODE, PREFILL))], H200)
    assert only.matters
    assert only.nccl_messages == (PREFILL,)


@pytest.mark.parametrize(
    ("arguments", "environment", "changed"),
    [
        ("--tp-size 8", {}, {}),
        ("--tp-size 8 --disable-custom-all-reduce", {}, {"custom": False}),
        (
            "--tp-size 8 --enable-deterministic-inference",
            {},
            {"custom": False, "deterministic": True},
        ),
        (
            "--tp-size 8 --enforce-disable-flashinfer-allreduce-fusion",
            {},
            {"fusion": False},
        ),
        ("--tp-size 8 --flashinfer-allreduce-fusion-backend trtllm", {}, {"fusion": True}),
        ("--tp-size 8 --attn-dp-size 8", {}, {"reduces_whole": False}),
        ("--tp-size 8 --moe-a2a-backend deepep", {}, {"reduces_whole": False}),
        ("--tp-size 8 --enable-symm-mem", {}, {"symm_mem": True}),
        ("--tp-size 8", {"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}, {"pcie_ipc": True}),
        ("--tp-size 8", {"SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2": "0"}, {"custom_v2": False}),
    ],
)
def test_what_arguments_say_of_transports(arguments, environment, changed):
    known = Known(gpu="hopper", target=ModelFacts(architecture=KIMI), environment=environment)
    found = comms_of(parse_arguments(arguments.split()), known, nvlink=True)
    assert found == replace(H200, **changed)


def test_a_class_of_gpu_without_nvlink_needs_no_card():
    found = comms_of(parse_arguments(["--tp-size", "8"]), Known(gpu="sm120"))
    assert found.nvlink is False


# ------------------------------------------------------------------------------ what SGLang sets


def set_by_sglang(arguments, environment=()):
    found = engine_variables(parse_arguments(arguments.split()), dict(environment))
    return {variable.name: variable.value for variable in found}


def test_nvls_and_cumem_are_off_unless_asked_for_by_flag():
    assert set_by_sglang("--tp-size 8") == {
        "NCCL_CUMEM_ENABLE": "0",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_GRAPH_REGISTER": "0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "8",
    }
    assert set_by_sglang("--tp-size 8 --enable-nccl-nvls")["NCCL_NVLS_ENABLE"] == "1"
    symm = set_by_sglang("--tp-size 8 --enable-symm-mem")
    assert (symm["NCCL_NVLS_ENABLE"], symm["NCCL_CUMEM_ENABLE"]) == ("1", "1")


def test_an_exported_value_wins_only_without_the_flag():
    mine = {"NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_ENABLE": "1", "NCCL_GRAPH_REGISTER": "1"}
    assert set_by_sglang("--tp-size 8", mine) == {**mine, "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    asked = parse_arguments(["--tp-size", "8", "--enable-nccl-nvls"])
    assert [v.name for v in overwritten(asked, mine)] == ["NCCL_NVLS_ENABLE"]
    assert environment_of_server(asked, mine)["NCCL_NVLS_ENABLE"] == "1"


def test_deterministic_inference_takes_algorithm_and_channels():
    arguments = "--tp-size 8 --enable-deterministic-inference"
    found = set_by_sglang(arguments, {"NCCL_ALGO": "Ring", "NCCL_MIN_NCHANNELS": "32"})
    assert found["NCCL_ALGO"] == "allreduce:tree"
    assert found["NCCL_MIN_NCHANNELS"] == found["NCCL_MAX_NCHANNELS"] == "8"


def test_without_graphs_or_other_ranks_nothing_is_registered():
    assert "NCCL_GRAPH_REGISTER" not in set_by_sglang("--tp-size 1")
    assert "NCCL_GRAPH_REGISTER" not in set_by_sglang("--tp-size 8 --disable-cuda-graph")
    assert "NCCL_GRAPH_REGISTER" in set_by_sglang("--tp-size 8 --disable-decode-cuda-graph")


# ------------------------------------------------------------------------------ what is ranked


def chosen(tune=None, arguments="--tp-size 8", environment=(), nvlink=False):
    block = None if tune is None else Tune.model_validate(tune)
    return choose_settings(
        block, parse_arguments(arguments.split()), dict(environment), nvlink=nvlink
    )


def test_the_built_in_list_depends_on_the_links_and_its_names_are_its_variables():
    pcie, nvlink, either = (
        {one.name for one in built_in_settings(nvlink=links)} for links in (False, True, None)
    )
    assert "NCCL_P2P_DISABLE=1" in pcie - nvlink
    assert {"NCCL_NVLS_ENABLE=1", "NCCL_PROTO=LL128"} <= nvlink - pcie
    assert pcie == either  # what can corrupt data or hang elsewhere is not tried on a guess
    for one in built_in_settings(nvlink=False):
        assert sorted(one.name.split()) == [f"{name}={value}" for name, value in one.environment]
        assert one.why


def test_a_tune_block_replaces_the_list_and_its_first_values_are_in_use():
    choice = chosen({"environment": {"NCCL_ALGO": ("Tree", None, "Ring"), "OTHER": ("a", "b")}})
    assert not choice.is_built_in
    assert choice.default.environment == (("NCCL_ALGO", "Tree"),)
    assert [one.name for one in choice.others] == ["nothing set", "NCCL_ALGO=Ring"]


def test_bundles_are_settings_and_those_with_arguments_are_left_to_a_launch():
    choice = chosen(
        {
            "bundles": {
                "transport": {
                    "default": {},
                    "wide": {"environment": {"NCCL_MIN_NCHANNELS": 16, "NCCL_BUFFSIZE": 1048576}},
                    "symm": {
                        "arguments": {"--enable-symm-mem": True},
                        "environment": {"NCCL_NVLS_ENABLE": 1},
                    },
                },
                "pages": {"one": {}, "more": {"arguments": {"--page-size": 16}}},
            }
        }
    )
    assert [one.name for one in choice.others] == ["NCCL_BUFFSIZE=1048576 NCCL_MIN_NCHANNELS=16"]
    [(name, why)] = choice.left_out
    assert "--enable-symm-mem" in name
    assert "launch it" in why


def test_what_sglang_overwrites_or_the_environment_has_already_is_not_ranked():
    choice = chosen(
        {"environment": {"NCCL_NVLS_ENABLE": (None, "0"), "NCCL_PROTO": (None, "LL")}},
        arguments="--tp-size 8 --enable-nccl-nvls",
        environment={"NCCL_PROTO": "LL"},
    )
    assert not choice.others
    assert len(choice.left_out) == 3
    assert any("SGLang sets NCCL_NVLS_ENABLE=1 itself" in why for _, why in choice.left_out)
    assert any("already" in why for _, why in choice.left_out)


def test_too_many_combinations_are_refused():
    axes = {f"NCCL_X{i}": (None, *map(str, range(8))) for i in range(3)}
    with pytest.raises(InputError, match=f"at most {MOST_SETTINGS}"):
        chosen({"environment": axes})


# ------------------------------------------------------------------------------ from a scenario


def question(*overrides, path="scenarios/kimi.yaml", inherited=()):
    """Of a scenario, without its tune block unless one is given."""
    root = Path(__file__).parents[2]
    overrides = ("tune=null", *overrides)
    return nccl_question(load_scenario(root / path, overrides), dict(inherited))


def test_a_scenario_on_pcie_has_nccl_everywhere():
    asked = question()
    assert [step.step.load for step in asked.steps] == ["1", "1", "8", "8", "64", "64", "prefill"]
    assert all(step.matters for step in asked.steps)
    assert asked.steps[1].step.messages[0].message_bytes == 4 * 14336
    assert asked.choice.is_built_in
    assert asked.server_environment == {"NCCL_DEBUG": "WARN"}


def test_the_same_scenario_on_nvlink_has_it_in_prefill_alone():
    asked = question("sim.hardware=h200-x8")
    assert [step.step.load for step in asked.steps if step.matters] == ["prefill"]


def test_a_tune_block_names_drafts_loads_and_settings():
    tune = {
        "num_steps": [1, 3],
        "loads": {"8": 1},
        "environment": {"NCCL_ALGO": [None, "Ring"]},
    }
    asked = question(f"tune={json.dumps(tune)}")
    steps = [(step.step.load, step.step.draft) for step in asked.steps]
    assert steps == [
        ("8", "off"),
        ("8", "EAGLE3 1-1-2"),
        ("8", "EAGLE3 3-1-4"),
        ("prefill", "off"),
    ]
    assert [one.name for one in asked.choice.others] == ["NCCL_ALGO=Ring"]


def test_a_wrong_tune_block_is_told_with_its_place():
    with pytest.raises(ScenarioError, match=r"tune\.nmu_steps"):
        question('tune={"nmu_steps": [1]}')


def test_what_the_users_shell_exports_counts():
    asked = question(inherited={"NCCL_NVLS_ENABLE": "1", "HOME": "/x"})
    assert {v.name: v.is_users for v in asked.engine}["NCCL_NVLS_ENABLE"]
    assert "HOME" not in asked.environment


def test_the_lab_has_one_rank_and_floats_of_four_bytes():
    asked = question(path="scenarios/lab.yaml")
    assert asked.element_bytes == 4
    assert not any(step.matters for step in asked.steps)
    assert any("prefill" in note for note in asked.notes)


def test_an_open_load_of_which_no_card_tells_the_batch_is_a_note(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "hidden_size": 512,
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "intermediate_size": 1024,
                "vocab_size": 1000,
            }
        )
    )
    asked = question(
        "sim=null",
        f"target.path={tmp_path}",
        'workloads.agent-32k.loads={"rates": [{"rate_per_s": 2}]}',
    )
    assert any("rate=2" in note for note in asked.notes)
    assert asked.steps[0].step.messages[0].message_bytes == 1024


def test_without_config_and_card_the_hidden_size_is_asked_for():
    with pytest.raises(InputError, match="hidden size is not known") as told:
        question("sim=null")
    assert "config.json" in told.value.hint
