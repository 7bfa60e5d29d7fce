"""A command line becomes what SGLang would make of it, or is refused as SGLang refuses it."""

import subprocess
import sys

import pytest

from bench.errors import InputError
from bench.simulator.__main__ import main
from bench.simulator.about import resolved_arguments
from bench.simulator.log import log_start
from bench.simulator.refusals import StartFailure
from bench.simulator.settings import read_settings

BASE = ["--model-path", "/models/kimi", "--tp-size", "8"]
SMALL = ["--sim-target", "llama-3.1-8b"]
EAGLE3 = [*BASE, "--speculative-algorithm", "EAGLE3"]


def three(settings) -> tuple[int, int, int]:
    spec = settings.speculation
    return spec.num_steps, spec.topk, spec.num_draft_tokens


def test_topk_1_forces_draft_tokens():
    numbers = "--speculative-num-steps 3 --speculative-eagle-topk 1"
    settings = read_settings([*EAGLE3, *numbers.split(), "--speculative-num-draft-tokens", "16"])
    assert three(settings) == (3, 1, 4)
    assert any(change.rule == "C3" for change in settings.drafting.changes)
    assert resolved_arguments(settings)["speculative_num_draft_tokens"] == 4


def test_nothing_given_means_the_automatic_numbers_and_48_requests():
    settings = read_settings(EAGLE3)
    assert three(settings) == (3, 1, 4)
    assert settings.max_running_requests == 48
    assert settings.graph_batch_sizes[-1] == 48
    assert resolved_arguments(settings)["max_running_requests"] == 48


def test_without_speculation_the_limit_is_sglangs_own():
    settings = read_settings(BASE)
    assert settings.speculation is None
    assert settings.max_running_requests >= 2048
    assert settings.graph_batch_sizes[-1] == 512
    assert resolved_arguments(settings)["speculative_algorithm"] is None


@pytest.mark.parametrize(
    ("arguments", "exit_code", "word"),
    [
        (["--speculative-num-steps", "3"], 1, "TypeError"),
        (["--speculative-eagle-topk", "1"], 1, "AssertionError"),
        (["--speculative-num-steps", "3", "--speculative-eagle-topk", "2"], 1, "TypeError"),
        (["--speculative-num-steps", "many", "--speculative-eagle-topk", "1"], 2, "many"),
        (["--cuda-graph-max-bs", "32"], 2, "ambiguous option"),
        (["--max-total-tokens", "many"], 2, "Invalid integer value"),
        (["--chunked-prefill-size", "many"], 2, "invalid int value: 'many'"),
        (["--max-running-requests"], 2, "expected one argument"),
        (["--schedule-policy", "soon"], 2, "--schedule-policy: invalid choice: 'soon'"),
        (["--enable-metrics=1"], 2, "--enable-metrics: ignored explicit argument '1'"),
        (["--load-balance-method", "fair"], 2, "invalid choice: 'fair'"),
        (["--speculative-algorithm", "GUESS"], 1, "Unknown speculative algorithm name: GUESS"),
        (["--mem-fraction-static", "0.5"], 1, "Not enough memory"),
        (["--max-runing-requests", "8"], 2, "unrecognized arguments"),
        (["stray"], 2, "unrecognized arguments: stray"),
        (["--tp-size", "8", "x", "--", "y"], 2, "unrecognized arguments: x -- y"),
    ],
)
def test_what_sglang_would_not_start_with(arguments, exit_code, word):
    with pytest.raises(StartFailure, match=word) as caught:
        read_settings([*EAGLE3, *arguments])
    assert caught.value.exit_code == exit_code


def test_a_tree_beyond_its_capacity_does_not_start():
    numbers = "--speculative-num-steps 2 --speculative-eagle-topk 2"
    read_settings([*EAGLE3, *numbers.split(), "--speculative-num-draft-tokens", "7"])
    with pytest.raises(StartFailure, match="out of range"):
        read_settings([*EAGLE3, *numbers.split(), "--speculative-num-draft-tokens", "8"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--sim-hardware", "rtx-pro-6000"], "rtx-pro-6000-x8"),
        (["--sim-target", "kimi"], "kimi-k2.5"),
        (["--sim-acceptance", "0.5,0.6"], "falling"),
        (["--sim-acceptance", "1.2"], "between 0 and 1"),
        (["--sim-speed", "4"], "--sim-speed"),
        (["--tp-size", "16"], "8 GPUs"),
        (["--tp-size", "4", "--dp-size", "4"], "product is at most 8"),
        (["--speculative-algorithm", "NGRAM"], "without --sim-acceptance"),
        (
            ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "d"],
            "DFLASH asked for",
        ),
        (
            ["--speculative-algorithm", "STANDALONE", "--speculative-draft-model-path", "d"],
            "draft model of its own",
        ),
    ],
)
def test_what_the_simulator_cannot_do_is_said(arguments, words):
    with pytest.raises(InputError) as caught:
        read_settings([*BASE, *arguments])
    assert words in f"{caught.value} {caught.value.hint}"


def test_mistakes_reach_the_user_without_a_traceback(capsys):
    assert main([]) == 2
    assert main([*BASE, "--sim-target", "kimi"]) == 2
    assert main([*EAGLE3, "--speculative-num-steps", "3"]) == 1
    told = capsys.readouterr().err
    assert "--model-path" in told
    assert "Did you mean 'kimi-k2.5'?" in told
    assert "Traceback" not in told


def test_a_taken_port_ends_the_start_with_1(plain):
    command = [sys.executable, "-m", "bench.simulator", *BASE, "--port", str(plain.port)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "address already in use" in done.stderr
    assert "Traceback" not in done.stderr


def test_unmodelled_arguments_are_named_and_shown():
    more = (
        "--dsa-prefill-backend flashmla_kv --enable-mixed-chunk --page-size 64 --trust-remote-code"
    )
    settings = read_settings([*BASE, *more.split()])
    assert set(settings.not_modelled) == {"dsa_prefill_backend", "enable_mixed_chunk", "page_size"}
    info = resolved_arguments(settings)
    assert info["page_size"] == 64
    assert info["enable_mixed_chunk"] is True
    assert info["trust_remote_code"] is True
    assert info["dsa_prefill_backend"] == "flashmla_kv"


def test_graph_sizes_follow_the_arguments():
    def sizes(text: str) -> tuple[int, ...]:
        return read_settings([*BASE, *text.split()]).graph_batch_sizes

    assert sizes("--disable-cuda-graph") == ()
    assert sizes("--cuda-graph-bs-decode 4 1 8") == (1, 4, 8)
    assert sizes("--cuda-graph-max-bs-decode 20") == (1, 2, 4, 8, 12, 16, 20)
    assert sizes("--max-running-requests 64")[-1] == 64


def test_memory_decides_the_kv_cache():
    small, large = (
        read_settings([*BASE, "--mem-fraction-static", share]).kv_capacity_tok
        for share in ("0.85", "0.9")
    )
    assert 100_000 < small < large
    assert read_settings([*BASE, "--sim-hardware", "h200-x8"]).kv_capacity_tok > 500_000
    assert read_settings([*BASE, "--max-total-tokens", "5000"]).kv_capacity_tok == 5000
    # 5,000 tokens hold no 16,000 half-empty requests.
    limited = read_settings([*BASE, "--max-total-tokens", "50"])
    assert limited.max_running_requests == 25


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "--speculative-num-steps 3 --speculative-eagle-topk 1",
            "adjusted to speculative_num_steps + 1 when speculative_eagle_topk == 1",
        ),
        (
            "",
            "Max running requests is reset to 48 for speculative decoding. You can override ",
        ),
        ("--speculative-adaptive", "AdaptiveSpeculativeParams initialized: steps=3, "),
        ("--speculative-adaptive --enable-pdmux", "speculative_adaptive disabled: "),
        ("--speculative-ngram-capacity 5", "ignored: --speculative-ngram-capacity"),
    ],
)
def test_the_log_says_what_sglang_changes_in_its_words(arguments, line, capsys):
    settings = read_settings([*EAGLE3, *arguments.split()])
    log_start(settings, {}, lambda _: None)
    assert line in capsys.readouterr().err


def test_sizes_may_have_suffixes():
    settings = read_settings([*BASE, "--max-total-tokens", "32k", "--context-length", "4Ki"])
    assert (settings.kv_capacity_tok, settings.context_len) == (32_000, 4096)


def test_ranks_share_the_node():
    settings = read_settings([*BASE, "--tp-size", "4", "--dp-size", "2", *SMALL])
    assert (settings.tp, settings.dp) == (4, 2)
    assert settings.not_modelled == ()
    attention = read_settings([*BASE, "--dp-size", "8", "--enable-dp-attention"])
    assert attention.dp == 1
    assert attention.not_modelled == ("enable_dp_attention",)
