"""Other tools' results as neutral records: for comparison, for import, never mixed with ours.

    read_results(path)          result files of SGLang's bench_serving and of `vllm bench serve`
    parse_tables(text)          their printed tables, as many as a text holds
    read_specforge(path)        result files of SpecForge's benchmarks
    read_sglang_log(path)       an SGLang log: start, failure, decode speed, collapsed acceptance
    parse_vllm_log(lines)       vLLM's speculation and engine lines
    recomputed(result)          what a result tells twice, and whether both agree
    count_doubts(row)           why a row's token counts are not to be trusted
    strict_json(value)          JSON without NaN and Infinity

What is missing, NaN or infinite there is None here. Definitions stay the other tool's: each field
says what it is (docs/foreign.md).
"""

from bench.foreign.agreement import Recomputed, agrees_with_itself, recomputed
from bench.foreign.json_text import Rows, parse_rows, read_rows, strict_json
from bench.foreign.results import ForeignResult, Latency, SpecCounts, read_results, to_result
from bench.foreign.sglang_log import SglangLog, parse_sglang_log, read_sglang_log
from bench.foreign.specforge import SpecForgeRun, read_specforge, specforge_runs
from bench.foreign.tables import parse_tables
from bench.foreign.token_counts import CountDoubt, count_doubts
from bench.foreign.vllm_log import EngineLine, SpecLine, parse_vllm_line, parse_vllm_log

__all__ = [
    "CountDoubt",
    "EngineLine",
    "ForeignResult",
    "Latency",
    "Recomputed",
    "Rows",
    "SglangLog",
    "SpecCounts",
    "SpecForgeRun",
    "SpecLine",
    "agrees_with_itself",
    "count_doubts",
    "parse_rows",
    "parse_sglang_log",
    "parse_tables",
    "parse_vllm_line",
    "parse_vllm_log",
    "read_results",
    "read_rows",
    "read_sglang_log",
    "read_specforge",
    "recomputed",
    "specforge_runs",
    "strict_json",
    "to_result",
]
