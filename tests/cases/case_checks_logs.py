"""Checks of what servers print: logs, scrapes, the ends of failed starts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from case_fields import AnyOf, AnyOrder

from bench.foreign import SpecLine, parse_vllm_log
from bench.sglang.accept_rate import accept_rate_meaning, accept_rate_of_depth
from bench.sglang.decode_log import collapses, decode_speed
from bench.sglang.failures import ACTIONS, Action, classify_start
from bench.sglang.log_lines import DecodeLine, LogPrefix, PrefillLine, parse_batch_lines
from bench.sglang.log_text import read_text
from bench.sglang.scrape import (
    RANK_LABEL,
    Sample,
    canonical_name,
    parse_scrape,
    readings,
)

Found = dict[str, Any]

UNTOLD = AnyOf((None, "unknown", "ambiguous", "none"))


def read_log(folder: Path) -> list[str]:
    return read_text(folder / "input.log").splitlines()


def batch_lines(folder: Path) -> tuple[list[DecodeLine], list[PrefillLine]]:
    parsed = parse_batch_lines(read_log(folder))
    return (
        [line for line in parsed if isinstance(line, DecodeLine)],
        [line for line in parsed if isinstance(line, PrefillLine)],
    )


# ------------------------------------------------------------------------------------------- logs


def prefix_fields(prefix: LogPrefix) -> Found:
    return {
        "ts": prefix.time_text,
        "dp": prefix.dp_rank,
        "tp": prefix.tp_rank,
        "pp": prefix.pp_rank,
        "ep": prefix.ep_rank,
    }


def decode_fields(line: DecodeLine) -> Found:
    return prefix_fields(line.prefix) | {
        "iter": line.iteration,
        "running": line.running_ct,
        "tokens": line.kv_tok,
        "full_tokens": line.kv_tok,
        "usage": line.token_usage,
        "full_usage": line.token_usage,
        "swa_tokens": line.swa_tok,
        "swa_usage": line.swa_usage,
        "mamba_num": line.mamba_ct,
        "mamba_usage": line.mamba_usage,
        "accept_len": line.accept_len_tok,
        "accept_rate": line.accept_rate,
        "cap_len": line.cap_len_tok,
        "block_accept_len": line.block_accept_len_tok,
        "retracted": line.retracted_ct,
        "graph": line.cuda_graph,
        "gen": line.gen_tok_per_s,
        "queue": line.queue_ct,
        "truncated": line.is_truncated,
    }


def prefill_fields(line: PrefillLine) -> Found:
    return prefix_fields(line.prefix) | {
        "iter": line.iteration,
        "new_seq": line.new_request_ct,
        "new_token": line.new_tok,
        "new_tokens": line.new_tok,
        "cached_token": line.cached_tok,
        "cached_tokens": line.cached_tok,
        "cached": line.cached_tok,
        "cache_hit_rate": line.cache_hit_rate,
        "usage": line.token_usage,
        "swa_usage": line.swa_usage,
        "mamba_usage": line.mamba_usage,
        "running": line.running_ct,
        "queue": line.queue_ct,
        "pending_token": line.pending_tok,
        "pending_tokens": line.pending_tok,
        "pending": line.pending_tok,
        "graph": line.cuda_graph,
        "input": line.input_tok_per_s,
        "input_throughput": line.input_tok_per_s,
        "truncated": line.is_truncated,
    }


def check_decode_log(folder: Path) -> Found:
    decode, prefill = batch_lines(folder)
    cut = [index for index, line in enumerate(decode) if line.is_truncated]
    return {
        "decode_lines": [decode_fields(line) for line in decode],
        "prefill_lines": [prefill_fields(line) for line in prefill],
        "n_decode": len(decode),
        "n_prefill": len(prefill),
        "n_truncated": sum(line.is_truncated for line in (*decode, *prefill)),
        "truncated": cut,
        "truncated_indices": cut,
    }


def check_idle_decode_line(folder: Path) -> Found:
    decode, _ = batch_lines(folder)
    speed = decode_speed(decode)
    return {
        "n": len(decode),
        "excluded": speed.after_idle,
        "n_steady": len(decode) - len(speed.after_idle),
        "steady_gen_mean": speed.gen_tok_per_s,
        "steady_step_ms": speed.step_ms,
        "mean_accept_len": speed.accept_len_tok,
    }


def check_accept_episodes(folder: Path) -> Found:
    decode, _ = batch_lines(folder)
    episodes = collapses(decode)
    inside = sorted(index for episode in episodes for index in episode.indices)
    speeds = [decode[i].gen_tok_per_s for i in inside if decode[i].gen_tok_per_s is not None]
    in_episode = sum(speeds) / len(speeds) if speeds else None
    healthy = [line for index, line in enumerate(decode) if index not in inside]
    found: Found = {
        "n": len(decode),
        "collapsed_indices": inside,
        "episodes": len(episodes),
        "mean_gen_in_episode": in_episode,
        "healthy_mean_accept": decode_speed(healthy).accept_len_tok,
        "mean_accept": decode_speed(decode).accept_len_tok,
        "mean_accept_len": decode_speed(decode).accept_len_tok,
    }
    # The speed without speculation is only in the field's name.
    for name in json.loads((folder / "expected.json").read_text()):
        if match := re.fullmatch(r"vs_no_spec_(\d+(?:\.\d+)?)", name):
            found[name] = None if in_episode is None else in_episode / float(match[1])
    return found


def check_vllm_log(folder: Path) -> Found:
    lines = [line for line in parse_vllm_log(read_log(folder)) if isinstance(line, SpecLine)]
    depths = {line.depth for line in lines}
    identities = [
        agrees
        for line in lines
        for agrees in (line.length_agrees, line.rate_agrees, line.depth_agrees)
        if agrees is not None
    ]
    return {
        "n": len(lines),
        "accept_len": [line.accept_len_tok for line in lines],
        "rate": [line.accept_rate for line in lines],
        "accepted": [line.accepted_tok for line in lines],
        "drafted": [line.drafted_tok for line in lines],
        "accepted_throughput": [line.accepted_tok_per_s for line in lines],
        "drafted_throughput": [line.drafted_tok_per_s for line in lines],
        "per_pos": [line.accept_at_position for line in lines],
        "per_pos_sum_plus_1": [
            1 + sum(line.accept_at_position) if line.accept_at_position else None for line in lines
        ],
        "num_spec_tokens": depths.pop() if len(depths) == 1 else [line.depth for line in lines],
        "identities_hold": all(identities) if identities else None,
        "truncated": [index for index, line in enumerate(lines) if line.is_truncated],
    }


def check_accept_rate_definitions(folder: Path) -> Found:
    definitions, normalized = [], []
    for row in json.loads((folder / "input.json").read_text()):
        length, rate, drafts = (
            row.get(name) for name in ("accept_len", "accept_rate", "num_draft_tokens")
        )
        told = None not in {length, drafts}
        meaning = accept_rate_meaning(length, rate, drafts) if told and rate is not None else None
        definitions.append(UNTOLD if meaning is None else meaning.value)
        normalized.append(accept_rate_of_depth(length, drafts) if told else None)
    return {"definition": definitions, "normalized_draft_accept_rate": normalized}


# ----------------------------------------------------------------------------------------- scrapes


def check_metrics_scrape(folder: Path) -> Found:
    text = read_text(folder / "input.prom")
    samples = parse_scrape(text)
    found: Found = {
        "n_samples": len(samples),
        "nan_samples": sum(sample.value is None for sample in samples),
    }
    values: dict[str, dict[int | None, float | None]] = {}
    for reading in readings(text):
        values.setdefault(reading.name, {})[reading.rank] = reading.value
    kept = set(values)
    for sample in samples:  # series that bench does not keep, as they stand
        name = canonical_name(sample.name)
        if name not in kept:
            by_rank = values.setdefault(name, {})
            before = by_rank.get(rank(sample)) or 0.0
            is_more = name.endswith("_total") and sample.value is not None
            by_rank[rank(sample)] = before + sample.value if is_more else sample.value
    for name, by_rank in values.items():
        found |= series_fields(name.removeprefix("sglang:"), by_rank)
    return found


def rank(sample: Sample) -> int | None:
    text = sample.labels.get(RANK_LABEL, "")
    return int(text) if text.isdecimal() else None


def series_fields(name: str, by_rank: dict[int | None, float | None]) -> Found:
    """A series by rank, or as one number where there is one, and the sum of what ranks tell."""
    known = [value for value in by_rank.values() if value is not None]
    of_ranks = {str(rank): value for rank, value in by_rank.items()}
    one = next(iter(by_rank.values())) if len(by_rank) == 1 else None
    return {
        name: AnyOf((one, of_ranks)) if len(by_rank) == 1 else of_ranks,
        f"{name}_sum": sum(known) if known else None,
        f"{name}_max": max(known, default=None),
    }


# ------------------------------------------------------------------------------------------ starts

CASE_CLASSES = (
    "kv_pool_too_small",
    "cuda_oom",
    "port_in_use",
    "nccl_port_in_use",
    "bad_spec_args",
    "cuda_illegal_access",
    "hang_in_graph_capture",
    "spec_runtime_bug",
)
"""The classes that cases know; ours are more."""


def check_start_failure(folder: Path) -> Found:
    classes = []
    for row in json.loads((folder / "input.json").read_text()):
        lines = row["lines"] if "lines" in row else row["last_line"].splitlines()
        became = classify_start(
            lines,
            exit_code=row.get("exit"),
            silent_s=row.get("seconds_since_last_line") or 0,
        )
        classes.append(AnyOf((None, "starting", "unknown")) if became is None else str(became))
    found: Found = {"class": classes}
    for action in Action:
        found[action.value] = AnyOrder(
            kind.value for kind, todo in ACTIONS.items() if todo is action and kind in CASE_CLASSES
        )
    return found


CHECKS = {
    "decode_log": check_decode_log,
    "idle_decode_line": check_idle_decode_line,
    "accept_episodes": check_accept_episodes,
    "vllm_log": check_vllm_log,
    "accept_rate_definitions": check_accept_rate_definitions,
    "metrics_scrape": check_metrics_scrape,
    "start_failure": check_start_failure,
}
