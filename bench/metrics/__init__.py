"""What was measured, from what was observed: pure functions, defined in docs/metrics.md."""

from bench.metrics.compare import compare
from bench.metrics.findings import ADVICE, with_findings
from bench.metrics.limit import limit_tok_per_s
from bench.metrics.run_checks import run_findings
from bench.metrics.summarize import summarize

__all__ = ["ADVICE", "compare", "limit_tok_per_s", "run_findings", "summarize", "with_findings"]
