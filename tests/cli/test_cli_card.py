"""`bench card`: cards from config.json, and their overheads from a stored run."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from bench.cli.card_steps import measured_steps, tensor_parallel_sizes
from bench.model import CellStatus, EffectiveConfig
from bench.physics import Speculation, load_target
from bench.physics.fitting import MeasuredStep

CONFIGS = Path(__file__).parents[1] / "physics" / "configs"


def test_a_card_from_config_json(bench, tmp_path):
    model = tmp_path / "My-Model"
    model.mkdir()
    (model / "config.json").write_bytes((CONFIGS / "qwen3-30b-a3b.json").read_bytes())
    draft = str(CONFIGS / "qwen3-30b-a3b-eagle3.json")
    code, out, err = bench("card", "target", str(model / "config.json"), "--draft", draft)
    assert (code, err) == (0, "")
    assert out.startswith("# Qwen3MoeForCausalLM: 30.5 B parameters, 3.0 B active")
    assert yaml.safe_load(out)["source"] == "Made from config.json of My-Model."
    (tmp_path / "mine.yaml").write_text(out)
    shipped, own = load_target("qwen3-30b-a3b"), load_target(str(tmp_path / "mine.yaml"))
    assert (own.parts, own.draft.parts) == (shipped.parts, shipped.draft.parts)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "is no JSON"),
        ("[]", "found list"),
        ("{}", "config.json: the model's config has no hidden_size"),
        ('{"hidden_size": "4096"}', "hidden_size of the model's config is '4096'"),
        ('{"hidden_size": "4096"}', "Write 4096 without quotes."),
        (b"\xff\xfe", "not text"),
    ],
)
def test_what_is_no_config_is_told(text, said, bench, tmp_path):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    code, out, err = bench("card", "target", str(path))
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_overheads_of_a_run(finished, bench):
    code, out, err = bench(
        *("card", "fit", "latest", "--target", "kimi-k2.5", "--hardware", "h200-x8"),
        *("--out", str(finished.place / "results")),
    )
    assert code == 0, err
    assert "SIMULATED" in out.splitlines()[0]
    card = yaml.safe_load(out)
    assert card["fixed_ms"] > 0
    assert card["cycle_fixed_ms"] >= 0
    lines = err.splitlines()
    assert lines[0].startswith("SIMULATED")
    cells = [line.partition(":")[0] for line in lines[1:]]
    assert cells == [f"{arm} chat at {load}" for arm in ("baseline", "eagle3") for load in (1, 2)]
    (finished.place / "fitted.yaml").write_text(out)
    own = load_target(str(finished.place / "fitted.yaml"))
    assert (own.fixed_ms, own.cycle_fixed_ms) == (card["fixed_ms"], card["cycle_fixed_ms"])


def stand_in_cell(**changes):
    values = {
        "launch_id": "L0",
        "arm": "eagle3",
        "workload": "chat",
        "load": "8",
        "status": CellStatus.VALID,
        "cycle_ms": 12.5,
        "prompt_tok": SimpleNamespace(mean=1000.0),
        "output_tok": SimpleNamespace(mean=200.0),
        "accept_len_tok": 2.5,
        "cache_hit_ratio": 0.75,
        "window_busy_slots_mean": 7.4,
    }
    return SimpleNamespace(**values | changes)


def steps_of(*cells, **speculative):
    effective = EffectiveConfig(
        speculative=tuple(speculative.items()),
        other=(("tp_size", "8"),),
        version="0.5.23",
        decode_graph_batch_sizes=(1, 2, 4, 8),
    )
    launches = [SimpleNamespace(launch_id="L0", effective=effective)]
    stored = SimpleNamespace(manifest=SimpleNamespace(launches=launches), measurements=cells)
    assert tensor_parallel_sizes(stored) == {8}
    return measured_steps(stored)


CHAIN = {"algorithm": "EAGLE3", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}


def test_what_a_cell_says_of_its_steps():
    (step,) = steps_of(stand_in_cell(), **CHAIN)
    assert step == MeasuredStep(
        label="eagle3 chat at 8",
        batch=7,
        context_tok_mean=1100,
        speculation=Speculation(num_steps=3, topk=1, num_draft_tokens=4),
        step_ms=12.5,
        graph_batches=(1, 2, 4, 8),
        prompt_tok=250,
        cached_tok=750,
        steps_per_request=80,
    )
    (plain,) = steps_of(stand_in_cell(window_busy_slots_mean=None), algorithm=None)
    assert (plain.batch, plain.speculation) == (8, None)


def test_cells_that_tell_nothing_of_a_step_are_left_out():
    cells = [
        stand_in_cell(**changes)
        for changes in (
            {"load": "rate=4"},
            {"load": "capacity"},
            {"cycle_ms": None},
            {"prompt_tok": None},
            {"status": CellStatus.INVALID},
            {"launch_id": "L1"},
        )
    ]
    assert steps_of(*cells, **CHAIN) == []
    assert steps_of(stand_in_cell(), **CHAIN | {"adaptive": True}) == []
    assert len(steps_of(stand_in_cell(status=CellStatus.SUSPECT), **CHAIN)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("latest", "--target", "kimi", "--hardware", "h200-x8"), "no target card 'kimi'"),
        (("latest", "--target", "kimi-k2.5", "--hardware", "h100-x1"), "tensor-parallel size 8"),
        (("latest", "--target", "kimi-k2.5", "--hardware", "rtx-pro-6000-x8"), "faster than"),
        (("none", "--target", "kimi-k2.5", "--hardware", "h200-x8"), "no run 'none'"),
    ],
)
def test_what_cannot_be_fitted_is_told(arguments, said, finished, bench):
    results = str(finished.place / "results")
    code, out, err = bench("card", "fit", *arguments, "--out", results)
    assert (code, out) == (2, "")
    assert said in err


def test_a_card_of_another_model_is_not_fitted(finished, bench):
    code, out, err = bench(
        *("card", "fit", "latest", "--target", "qwen3-30b-a3b", "--hardware", "h200-x8"),
        *("--out", str(finished.place / "results")),
    )
    assert (code, out) == (2, "")
    assert "measured kimi-k2.5, which is not the model of card qwen3-30b-a3b" in err
