import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sglang.log_text import MOST_CHARS, as_written, clipped, read_text, without_escapes

CARRIERS = [
    "sglang-1  | ",
    "2026-08-15T05:37:25.123456789Z stderr F ",
    "2026-08-15T05:37:25.1+02:00 stdout F ",
    "2026-08-15T05:37:25Z ",
    "Sep  5 10:00:00 gpu-7 sglang[4711]: ",
    "[rank3]: ",
    "[default0]:",
    "12: ",
    "(EngineCore_DP0 pid=7320) ",
    "\x1b[36msglang-1  |\x1b[0m ",
    "\ufeff",
]
LINES = [
    "KeyError: 'x'",
    "Killed",
    "[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=92.50 GB",
    '  File "/x/sglang/srt/speculative/eagle_worker.py", line 3, in f',
    "  4%|4         | 1/23 [00:03<01:13,  3.34s/it]",
    "",
]
ESCAPES = ["\x1b[31m", "\x1b[0m", "\x1b[38;5;196m", "\x1b[K", "\x1b]8;;http://x\x07", "\x1b(B"]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("carrier", ["", *CARRIERS])
def test_what_a_carrier_puts_in_front_is_taken_off(carrier, line):
    assert as_written(carrier + line + "\r\n") == line.rstrip()


@given(st.sampled_from(LINES), st.lists(st.tuples(st.integers(0, 60), st.sampled_from(ESCAPES))))
@settings(deadline=None, max_examples=60)
def test_escapes_anywhere_are_no_part_of_a_line(line, escapes):
    coloured = line
    for place, escape in sorted(escapes, reverse=True):
        inside = min(place, len(line))
        coloured = coloured[:inside] + escape + coloured[inside:]
    assert without_escapes(coloured) == line


def test_of_a_line_beyond_measure_head_and_tail_are_read():
    line = "head" + "x" * 10 * MOST_CHARS + "KeyError: 1"
    assert len(clipped(line)) < 3 * MOST_CHARS
    assert clipped(line).startswith("head")
    assert clipped(line).endswith("KeyError: 1")
    assert clipped("short") == "short"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_is_read_by_its_mark(tmp_path, encoding):
    path = tmp_path / "x.log"
    mark = "\ufeff" if encoding in {"utf-16-le", "utf-16-be"} else ""
    path.write_bytes((mark + "Töne\n").encode(encoding))
    assert read_text(path) == "Töne\n"


def test_bytes_that_are_no_text_cost_only_themselves(tmp_path):
    path = tmp_path / "x.log"
    path.write_bytes(b"a \xff b\n\x00c\n")
    assert read_text(path) == "a \ufffd b\n\x00c\n"
