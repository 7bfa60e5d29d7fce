"""From axes to distinct effective configurations."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.errors import ScenarioError
from bench.scenario import load_scenario
from bench.sglang.arguments import Known, tree_capacity_tok
from tuner.space import (
    Axes,
    Configuration,
    Server,
    Setting,
    effective,
    read_tune,
    settings_of,
    survey,
)
from tuner.space.candidates import candidates_of, weights_of

SERVER = Server(
    arguments=("--model-path", "target"),
    draft_arguments=("--speculative-draft-model-path", "draft"),
    known=Known(version="0.5.23"),
)
AXES = Axes(
    algorithms=("EAGLE3",),
    num_steps=(1, 2, 3, 5),
    eagle_topk=(1, 2, 4),
    num_draft_tokens=(4, 8, 16),
)


def test_all_chains_of_a_depth_are_one_configuration():
    space = survey(AXES, SERVER)
    chains = [c for c in space.configurations if c.eagle_topk == 1]
    assert [c.draft[1:] for c in chains] == [(1, 1, 2), (2, 1, 3), (3, 1, 4), (5, 1, 6)]
    assert dict(space.aliases)["C3"] > 0


def test_counts_add_up():
    space = survey(AXES, SERVER)
    assert space.raw == 1 + 4 * 3 * 3
    assert space.legal == len(space.configurations) + sum(n for _, n in space.aliases)
    assert space.configurations[0] == Configuration()


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True),
    topk=st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True),
    tokens=st.lists(st.integers(1, 64), min_size=1, max_size=3, unique=True),
)
def test_nothing_that_sglang_would_fail_with_is_left_and_everything_stays_itself(
    steps, topk, tokens
):
    axes = Axes(
        algorithms=("EAGLE3",),
        num_steps=tuple(steps),
        eagle_topk=tuple(topk),
        num_draft_tokens=tuple(tokens),
    )
    space = survey(axes, SERVER)
    assert len(set(space.configurations)) == len(space.configurations)
    for configuration in space.configurations:
        again = effective(configuration, SERVER)
        assert isinstance(again, tuple)
        assert again[0] == configuration
        if configuration.is_tree:
            _, s, k, n = configuration.draft
            assert n <= tree_capacity_tok(s, k)
            assert n > max(2, s)


def test_each_setting_has_its_own_off():
    settings_made = settings_of({}, {"NCCL_ALGO": (None, "Ring", "Tree")})
    space = survey(
        Axes(
            algorithms=("EAGLE3",),
            num_steps=(3,),
            eagle_topk=(1,),
            num_draft_tokens=(4,),
            settings=settings_made,
        ),
        SERVER,
    )
    off = [c for c in space.configurations if c.algorithm is None]
    assert [dict(c.environment).get("NCCL_ALGO") for c in off] == [None, "Ring", "Tree"]
    assert len(space.configurations) == 6


def test_an_option_that_does_nothing_makes_no_new_configuration():
    settings_made = settings_of({"--speculative-token-map": (None, "map.pt")}, {})
    space = survey(
        Axes(
            algorithms=("EAGLE3",),
            num_steps=(3,),
            eagle_topk=(1,),
            num_draft_tokens=(4,),
            settings=settings_made,
        ),
        SERVER,
    )
    assert [c.label for c in space.configurations] == ["off", "EAGLE3 3-1-4"]


def test_what_the_scenario_has_already_makes_no_new_configuration():
    server = Server(
        arguments=(*SERVER.arguments, "--page-size", "16", "--enable-mixed-chunk"),
        environment=(("NCCL_ALGO", "Ring"),),
        known=SERVER.known,
    )
    for asked in (
        Configuration(arguments=(("--page-size", "16"),)),
        Configuration(arguments=(("--enable-mixed-chunk", "true"),)),
        Configuration(environment=(("NCCL_ALGO", "Ring"),)),
    ):
        assert effective(asked, server)[0] == Configuration()
    other = Configuration(arguments=(("--page-size", "64"),))
    assert effective(other, server)[0] == other


def test_the_value_that_sglang_would_take_by_itself_makes_no_new_configuration():
    settings_made = settings_of({"--page-size": (None, "1", "16")}, {})
    axes = Axes(
        algorithms=("EAGLE3",),
        num_steps=(3,),
        eagle_topk=(1,),
        num_draft_tokens=(4,),
        settings=settings_made,
    )
    known = Server(
        arguments=(*SERVER.arguments, "--attention-backend", "flashinfer"),
        draft_arguments=SERVER.draft_arguments,
        known=SERVER.known,
    )
    labels = [c.label for c in survey(axes, known).configurations]
    assert labels == ["off", "EAGLE3 3-1-4", "off --page-size=16", "EAGLE3 3-1-4 --page-size=16"]
    # Whose pages are 128 long: asked for 1 it is still another server than the default one.
    other = replace(known, arguments=(*SERVER.arguments, "--attention-backend", "trtllm_mha"))
    labels = [c.label for c in survey(axes, other).configurations]
    assert "off --page-size=1" not in labels


def test_bundles_are_one_axis():
    wide = Setting(arguments=(("--enable-symm-mem", "true"),), environment=(("A", "1"),))
    made = settings_of({}, {"B": (None, "2")}, [(Setting(), wide)])
    assert len(made) == 4
    assert made[0] == Setting()
    assert Setting(arguments=wide.arguments, environment=(("A", "1"), ("B", "2"))) in made


# ------------------------------------------------------------------------------------ the block

KIMI = Path(__file__).parents[2] / "scenarios" / "kimi.yaml"


ADAPTIVE_ARM = """\
  adaptive:
    draft: {path: /models/kimi-k2.5-eagle3-rewired, revision: main}
    speculative: {algorithm: EAGLE3, num_steps: 3, eagle_topk: 1, num_draft_tokens: 4}
    arguments: [--speculative-adaptive]
"""


def scenario_with(tmp_path, block, arms=""):
    path = tmp_path / "kimi.yaml"
    text = KIMI.read_text(encoding="utf-8")
    path.write_text(
        text.partition("\ntune:")[0].replace("\nworkloads:", f"{arms}\nworkloads:")
        + "\ntune:\n"
        + block,
        encoding="utf-8",
    )
    return load_scenario(path)


def test_a_good_block_is_read(tmp_path):
    loaded = scenario_with(
        tmp_path,
        "  num_steps: {from: 1, to: 5, step: 2}\n"
        "  eagle_topk: [1, 4]\n"
        "  arguments: {--page-size: [1, 16]}\n"
        "  environment: {NCCL_MIN_NCHANNELS: [null, 16]}\n"
        '  loads: {"8": 2}\n'
        "  workloads: {chat-2k: 1}\n"
        "  budget: {launches: 12}\n",
    )
    tune = read_tune(loaded)
    assert tune.num_steps.values == (1, 3, 5)
    assert tune.arguments == {"--page-size": ("1", "16")}
    assert tune.environment == {"NCCL_MIN_NCHANNELS": (None, "16")}
    assert tune.budget.launches == 12


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("  num_stepz: [1]\n", "tune.num_stepz: unknown key. Did you mean num_steps?"),
        ("  workloads: {chat-3k: 1}\n", "no workload is called chat-3k. Did you mean chat-2k?"),
        ("  present: eagle3-rewird\n", "no arm is called eagle3-rewird"),
        ("  arguments: {--page-sise: [1]}\n", "is no option of SGLang. Did you mean --page-size?"),
        ("  arguments: {--speculative-num-steps: [1]}\n", "is tune.num_steps. Move it there"),
        ("  budget: {launches: 2}\n", "tune.budget.launches"),
        ("  num_steps: []\n", "tune.num_steps: is empty"),
        ("  objective: speed\n", "wanted one of"),
        ("  environment: {A: []}\n", "tune.environment.A: has no value"),
        ("  bundles: {transport: {}}\n", "tune.bundles.transport: has no value"),
        ("  algorithm: []\n", "tune.algorithm: is empty. Give at least one"),
        (
            "  algorithm: [EAGEL3]\n",
            "EAGEL3 is no algorithm of SGLang's own. Did you mean EAGLE3?",
        ),
        ("  algorithm: ['off']\n", "always among the candidates. Leave it out"),
        ("  algorithm: EAGLE3\n", "tune.algorithm: wanted a list; found the text 'EAGLE3'"),
        ("  num_steps: 3\n", "wanted a list, or {from: 1, to: 8}; found the number 3"),
        ("  num_steps: [x]\n", "tune.num_steps.0: wanted a whole number; found the text 'x'"),
        ("  num_steps: {from: 1}\n", "tune.num_steps.to: missing"),
        ("  environment: {A B: ['1']}\n", "'A B' is no name of an environment variable"),
        ("  environment: {HF_TOKEN: [abc]}\n", "tune.environment.HF_TOKEN: holds a secret"),
        ("  bundles: {x: {a: {environment: {HF_TOKEN: abc}}}}\n", "holds a secret"),
        ("  arguments: {--port: [1]}\n", "bench picks a free port. Take it out"),
        ("  arguments: {--speculative-draft-model-path: [a]}\n", "draft.path gives it"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, block, told):
    loaded = scenario_with(tmp_path, block)
    with pytest.raises(ScenarioError) as caught:
        read_tune(loaded)
    line = loaded.source.text.count("\n")  # the block is the file's last line
    assert told in str(caught.value)
    assert f"kimi.yaml:{line}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("block", "told"),
    [
        (
            "  present: eagle3-rewired\n  objective: energy\n",
            "tune.objective: simulated GPUs draw no power",
        ),
        ("  present: adaptive\n", "SGLang's adaptive mode is no one draft"),
    ],
)
def test_what_cannot_be_searched_is_told(tmp_path, block, told):
    loaded = scenario_with(tmp_path, block, ADAPTIVE_ARM)
    with pytest.raises(ScenarioError) as caught:
        candidates_of(loaded, read_tune(loaded), simulated="energy" in block)
    assert told in str(caught.value)


def test_an_algorithm_without_the_adaptive_mode_has_no_guest(tmp_path):
    loaded = scenario_with(tmp_path, "  algorithm: [STANDALONE]\n  present: eagle3-rewired\n")
    assert candidates_of(loaded, read_tune(loaded), simulated=False).adaptive is None


def cells(*pairs):
    return [
        SimpleNamespace(workload=SimpleNamespace(name=w), load=SimpleNamespace(label=load))
        for w, load in pairs
    ]


POINTS = cells(("chat-2k", "1"), ("chat-2k", "8"), ("chat-2k", "64"), ("agent-32k", "1"))


@pytest.mark.parametrize(
    ("block", "shares"),
    [
        ("  num_steps: [3]\n", (1 / 6, 1 / 6, 1 / 6, 1 / 2)),
        ("  workloads: {chat-2k: 3, agent-32k: 1}\n", (1 / 4, 1 / 4, 1 / 4, 1 / 4)),
        ('  loads: {"1": 1, "8": 2, "64": 1}\n', (1 / 8, 1 / 4, 1 / 8, 1 / 2)),
    ],
)
def test_a_workload_has_its_share_whatever_its_loads(tmp_path, block, shares):
    tune = read_tune(scenario_with(tmp_path, block))
    assert weights_of(tune, POINTS) == pytest.approx(shares)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["1", "8", "64"])),
        min_size=1,
        unique=True,
    )
)
def test_shares_sum_to_one(pairs):
    tune = SimpleNamespace(workloads={"a": 2.0}, loads={"8": 3.0})
    shares = weights_of(tune, cells(*pairs))
    assert sum(shares) == pytest.approx(1)
    present = {w for w, _ in pairs}
    total = sum({"a": 2.0}.get(w, 1.0) for w in present)
    for name in present:
        share = sum(s for s, (w, _) in zip(shares, pairs, strict=True) if w == name)
        assert share == pytest.approx({"a": 2.0}.get(name, 1.0) / total)


def test_no_block_is_told(tmp_path):
    path = tmp_path / "kimi.yaml"
    path.write_text(KIMI.read_text(encoding="utf-8").partition("\ntune:")[0])
    with pytest.raises(ScenarioError, match=r"tune: missing\. Add tune:"):
        read_tune(load_scenario(path))


def test_more_points_than_can_be_weighed_are_refused():
    kimi = load_scenario(
        Path(__file__).parents[2] / "scenarios" / "kimi.yaml",
        [
            "tune.num_steps={from: 1, to: 12}",
            "tune.eagle_topk=[1, 2, 4, 8]",
            "tune.num_draft_tokens={from: 4, to: 64, step: 2}",
        ],
    )
    with pytest.raises(ScenarioError, match="points to weigh against one another"):
        candidates_of(kimi, read_tune(kimi), simulated=True)
