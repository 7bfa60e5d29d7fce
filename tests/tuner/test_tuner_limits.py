"""Limits of a `tune:` block: what no server could have, or no search could hold, is told."""

import errno
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from studies import make_study, study_folder

from bench import clock
from bench.errors import DiskError, ScenarioError
from bench.scenario import load_scenario
from tuner.export import writing
from tuner.space import Configuration, Server, effective, read_tune
from tuner.space.candidates import weights_of
from tuner.space.points import Illegal
from tuner.space.reading import MOST_WORD_BYTES
from tuner.sweep.book import Book

QUICK = Path(__file__).parents[2] / "scenarios" / "quick.yaml"
SECRET = "xs3cr3tx"


def quick_with(tmp_path, block, *, arm="num_steps: 3, eagle_topk: 1, num_draft_tokens: 4"):
    text = QUICK.read_text(encoding="utf-8")
    text = text.replace("num_steps: 3, eagle_topk: 1, num_draft_tokens: 4", arm)
    path = tmp_path / "quick.yaml"
    path.write_text(f"{text}\ntune:\n{block}", encoding="utf-8")
    return load_scenario(path)


def told_of(loaded):
    with pytest.raises(ScenarioError) as caught:
        read_tune(loaded)
    return str(caught.value)


@pytest.mark.parametrize(
    ("block", "told"),
    [
        ("  num_steps: [2, 65]\n", "num_steps.1: wanted at most 64; found the number 65"),
        ("  num_steps: {from: 1, to: 65}\n", "num_steps.to: wanted at most 64; found the number"),
        ("  eagle_topk: [1000000]\n", "eagle_topk.0: wanted at most 64; found the number 1000000"),
        ("  eagle_topk: [99999999999]\n", "eagle_topk.0: wanted at most 64"),
        ("  num_draft_tokens: [4, 1025]\n", "num_draft_tokens.1: wanted at most 1024"),
        ('  loads: {"1": 1.0e+308, "8": 1}\n', "loads.1: wanted at most 1e+06"),
        ('  loads: {"1": 1.0e-320}\n', "loads.1: wanted at least 1e-06; found the number"),
        ("  workloads: {chat: 1.0e+308}\n", "workloads.chat: wanted at most 1e+06"),
        ("  budget: {hours: 1.0e+308}\n", "budget.hours: wanted at most 10000; found the number"),
        ("  budget: {hours: 10001}\n", "budget.hours: wanted at most 10000"),
        (
            '  arguments: {--page-size: [1, "a\\0b"]}\n',
            "arguments.--page-size.1: found the control",
        ),
        ('  environment: {A: ["a\\0b"]}\n', "environment.A.0: found the control character U+0000"),
        ('  environment: {A: ["\\e[2J"]}\n', "found the control character U+001B. Remove it"),
        (
            '  bundles: {x: {a: {environment: {A: "a\\0b"}}}}\n',
            "bundles.x.a.environment.A: found the control character U+0000",
        ),
        (
            '  bundles: {x: {a: {arguments: {--page-size: "a\\0b"}}}}\n',
            "bundles.x.a.arguments.--page-size: found the control character U+0000",
        ),
        (
            f"  environment: {{A: [{'x' * 200_000}]}}\n",
            f"environment.A.0: a word of 200002 bytes; a process takes at most {MOST_WORD_BYTES}",
        ),
    ],
    ids=lambda text: text.strip()[:40],
)
def test_a_value_beyond_its_limit_is_told_with_its_line(tmp_path, block, told):
    loaded = quick_with(tmp_path, block)
    message = told_of(loaded)
    assert f"tune.{told}" in message or told in message
    assert f"quick.yaml:{loaded.source.text.count(chr(10))} " in message
    assert len(message) < 400


def test_the_limits_themselves_are_good(tmp_path):
    tune = read_tune(
        quick_with(
            tmp_path,
            "  num_steps: [1, 64]\n  eagle_topk: [1, 64]\n  num_draft_tokens: [2, 1024]\n"
            '  loads: {"1": 1.0e-6, "8": 1.0e+6}\n  budget: {hours: 10000}\n'
            f'  environment: {{A: ["a\\n\\tb", {"x" * (MOST_WORD_BYTES - 2)}]}}\n',
        )
    )
    points = [
        SimpleNamespace(workload=SimpleNamespace(name="chat"), load=SimpleNamespace(label=label))
        for label in ("1", "8")
    ]
    shares = weights_of(tune, points)
    assert sum(shares) == pytest.approx(1)
    assert all(0 < share < 1 for share in shares)


@pytest.mark.parametrize(
    ("block", "key"),
    [
        (f"  arguments: {{--api-key: [{SECRET}, y]}}\n", "tune.arguments.--api-key"),
        (f"  arguments: {{--api-key: {SECRET}}}\n", "tune.arguments.--api-key"),
        (f"  arguments: {{--api-k: [{SECRET}]}}\n", "tune.arguments.--api-k"),
        (f"  arguments: {{--api-key={SECRET}: [null]}}\n", "tune.arguments.--api-key="),
        (
            f'  arguments: {{--model-loader-extra-config: [\'{{"api_key": "{SECRET}"}}\']}}\n',
            "tune.arguments.--model-loader-extra-config",
        ),
        (
            f"  bundles: {{x: {{a: {{arguments: {{--admin-api-key: {SECRET}}}}}}}}}\n",
            "tune.bundles.x.a.arguments.--admin-api-key",
        ),
        (f"  environment: {{HF_TOKEN: {SECRET}}}\n", "tune.environment.HF_TOKEN"),
    ],
)
def test_a_secret_on_an_axis_is_refused_and_not_repeated(tmp_path, block, key):
    loaded = quick_with(tmp_path, block)
    message = told_of(loaded)
    assert f"quick.yaml:{loaded.source.text.count(chr(10))} {key}" in message
    assert "holds a secret. Take it out" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("num_steps: 100000000, eagle_topk: 1", "num_steps: wanted at most 64"),
        (
            "num_steps: 3, eagle_topk: 1000000, num_draft_tokens: 4",
            "eagle_topk: wanted at most 64",
        ),
    ],
)
def test_an_arm_that_drafts_more_than_can_be_held_is_told_before_it_is_laid_out(
    tmp_path, arm, told
):
    with pytest.raises(ScenarioError) as caught:
        quick_with(tmp_path, "  num_steps: [2]\n  present: eagle3\n", arm=arm)
    assert f"arms.eagle3.speculative.{told}" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "tokens", "is_legal"),
    [
        ((), 1024, True),
        ((), 1025, False),
        ((("--speculative-ngram-max-bfs-breadth", "1000000"),), 8, False),
    ],
)
def test_what_options_make_of_a_draft_has_the_same_limits(arguments, tokens, is_legal):
    asked = Configuration(algorithm="NGRAM", num_draft_tokens=tokens, arguments=arguments)
    outcome = effective(asked, Server(arguments=("--model-path", "target")))
    assert isinstance(outcome, Illegal) is not is_legal
    if not is_legal:
        assert outcome.rule == "size"


@pytest.mark.parametrize(("hours", "left"), [(1e308, 40), (math.inf, 40), (1.0, 36), (0.0, 0)])
def test_a_study_with_any_hours_has_a_number_of_launches_left(hours, left):
    ground = SimpleNamespace(speed=1.0)
    book = SimpleNamespace(
        _prepared=SimpleNamespace(
            hours=hours,
            launches=40,
            launch_s=99.0,
            candidates=SimpleNamespace(ground=ground),
        ),
        trials=[],
        _began_ns=clock.now_ns(),
    )
    assert Book.launches_left(book) == left


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EIO])
def test_an_export_that_the_disk_refuses_is_exported_again_and_not_resumed(
    tmp_path, monkeypatch, number
):
    def refused(path, write):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(writing, "replace_file", refused)
    study = make_study()
    folder = study_folder(tmp_path, study)
    with pytest.raises(DiskError) as caught:
        writing.export_study(folder, study, tmp_path / "out")
    assert os.strerror(number) in str(caught.value)
    assert "--to; then export again" in caught.value.hint
    assert "resume" not in caught.value.hint
