"""What nccl-tests and NCCL's log print, in all recorded forms, whole and damaged."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.nccl.perf_output import PerfCall, PerfRow, parse_perf, perf_calls, perf_command
from tuner.nccl.tuning_log import Choice, parse_tuning_log

GOLDEN = Path(__file__).parents[1] / "golden" / "nccl"

# https://github.com/microsoft/mscclpp/pull/507, nccl-tests of 2025
NEW = (GOLDEN / "all_reduce_perf.txt").read_text()

# https://github.com/NVIDIA/nccl/issues/340, of 2020
OLD = (GOLDEN / "all_reduce_perf_old.txt").read_text()


def test_rows_are_in_place_times():
    found = parse_perf(NEW)
    assert found.rows == (
        PerfRow(message_bytes=1024, us=5.35, wrong=0),
        PerfRow(message_bytes=16384, us=6.27, wrong=None),
        PerfRow(message_bytes=65536, us=8.32, wrong=2),
    )
    assert (found.damaged, found.failure) == (0, None)


def test_the_older_form_has_no_root_and_errors_as_numbers():
    found = parse_perf(OLD)
    assert [(row.message_bytes, row.us, row.wrong) for row in found.rows] == [
        (65536, 13.83, 0),
        (8388608, 412.0, 0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "gpu59: Test NCCL failure all_reduce.cu:44 'unhandled cuda error'",
        " .. gpu59 pid 28307: Test failure common.cu:1005",
    ],
)
def test_a_failure_is_told_in_its_own_words(line):
    assert parse_perf(f"{NEW}{line}\n").failure == line.strip()


def test_a_warning_of_nccl_is_no_failure():
    line = "gpu59:28307:28315 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend"
    assert parse_perf(f"{NEW}{line}\n").failure is None


WHOLE = NEW.splitlines()[8]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_damaged_row_is_left_out_or_says_the_same(data):
    place = data.draw(st.integers(0, len(WHOLE) - 1))
    kind = data.draw(st.sampled_from(["cut", "drop", "change"]))
    if kind == "cut":
        line = WHOLE[:place]
    elif kind == "drop":
        line = WHOLE[:place] + WHOLE[place + 1 :]
    else:
        line = WHOLE[:place] + data.draw(st.characters(codec="ascii")) + WHOLE[place + 1 :]
    for row in parse_perf(line).rows:
        assert row.message_bytes == 16384
        assert row.us == pytest.approx(6.27, rel=0.01)


def test_a_row_that_contradicts_itself_is_damaged():
    assert parse_perf(WHOLE.replace("6.27", "62.7")).damaged == 1
    assert parse_perf(WHOLE.replace("4096 ", "4095 ")).damaged == 1


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_is_read(text):
    parse_perf(text)
    parse_tuning_log(text.splitlines())


def test_calls_step_over_few_sizes():
    chain = [14336 * rows for rows in (4, 1, 64, 8, 32, 1)]
    assert perf_calls(chain) == (
        PerfCall(least_bytes=14336, most_bytes=14336 * 64, step_bytes=14336),
    )
    with_prefill = perf_calls([*chain, 14336 * 8192])
    assert len(with_prefill) == 2
    assert with_prefill[-1].least_bytes == with_prefill[-1].most_bytes == 14336 * 8192
    assert perf_calls([]) == ()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=20))
def test_every_size_is_measured_by_one_call(sizes):
    calls = perf_calls(sizes)
    measured = [
        size
        for call in calls
        for size in range(call.least_bytes, call.most_bytes + 1, call.step_bytes)
    ]
    assert set(sizes) <= set(measured)
    assert len(measured) == len(set(measured))
    assert all(call.most_bytes - call.least_bytes <= 1024 * call.step_bytes for call in calls)


def test_a_call_runs_a_thread_a_gpu_in_graphs_and_checks_sums():
    call = PerfCall(least_bytes=14336, most_bytes=57344, step_bytes=14336)
    words = perf_command("/opt/all_reduce_perf", call, ranks=8, element_bytes=2, graphs=10)
    text = " ".join(words)
    assert text.startswith("/opt/all_reduce_perf -t 8 -g 1 -d bfloat16 -o sum -b 14336 -e 57344")
    assert "-G 10 -c 1" in text


# ------------------------------------------------------------------------------- NCCL's own log

# By name, by number with and without the collective (NVIDIA/nccl#1595), and symmetric kernels.
BY_WORD = (
    "gpu-1:1801:1801 [0] NCCL INFO AllReduce: 14336 Bytes -> Algo RING proto LL channel{Lo..Hi}="
    "{0..1}"
)
BY_NUMBER = "[0] NCCL INFO AllReduce: 57344 Bytes -> Algo 1 proto 2 time 3970.683594"
NUMBER_ALONE = "[0] NCCL INFO 805306368 Bytes -> Algo 0 proto 0 time 12.5"
SYMMETRIC = (
    "h:1:2 [0] NCCL INFO AllReduce [Symmetric]: 8192 Bytes -> Kernel AllReduce_AGxLL_R "
    "nchannels 1 nthreads 512 nWorks 1"
)
SET = "gpu-1:1801:1801 [6] NCCL INFO NCCL_ALGO set by environment to ring,tree"
OTHERS = (
    "gpu-1:1:1 [0] NCCL INFO AllGather: 14336 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..7}",
    "gpu-1:1:1 [0] NCCL INFO 24 coll channels, 24 collnet channels, 16 nvls channels",
    "gpu-1:1:1 [0] NCCL INFO     AllReduce |     7.2/   0.0 |",
)


def test_every_form_is_read_and_other_collectives_are_not():
    log = parse_tuning_log([BY_WORD, BY_NUMBER, NUMBER_ALONE, SYMMETRIC, SET, *OTHERS])
    assert log.choices == (
        Choice(message_bytes=8192, algorithm="AllReduce_AGxLL_R", protocol=None, channels=1),
        Choice(message_bytes=14336, algorithm="Ring", protocol="LL", channels=2),
        Choice(message_bytes=57344, algorithm="Ring", protocol="Simple", channels=None),
        Choice(message_bytes=805306368, algorithm="Tree", protocol="LL", channels=None),
    )
    assert log.set_variables == (("NCCL_ALGO", "ring,tree"),)
    assert [choice.label for choice in log.choices] == [
        "AllReduce_AGxLL_R, 1 channel",
        "Ring/LL, 2 channels",
        "Ring/Simple",
        "Tree/LL",
    ]


def test_names_are_one_however_they_are_written():
    line = "NCCL INFO AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..15}}"
    log = parse_tuning_log(
        [line.format(1, "NVLS_TREE", "SIMPLE"), line.format(2, "Tree", "Simple")]
    )
    assert [(c.algorithm, c.protocol) for c in log.choices] == [
        ("NVLSTree", "Simple"),
        ("Tree", "Simple"),
    ]


def test_the_last_choice_of_a_size_counts():
    later = BY_WORD.replace("RING proto LL", "TREE proto LL128")
    [choice] = parse_tuning_log([BY_WORD, later]).choices
    assert (choice.algorithm, choice.protocol) == ("Tree", "LL128")


@settings(max_examples=100, deadline=None)
@given(data=st.data(), line=st.sampled_from([BY_WORD, BY_NUMBER, SYMMETRIC]))
def test_a_cut_line_says_nothing_false(data, line):
    [whole] = parse_tuning_log([line]).choices
    cut = line[: data.draw(st.integers(0, len(line)))]
    for choice in parse_tuning_log([cut]).choices:
        assert choice == whole


@settings(max_examples=100, deadline=None)
@given(data=st.data(), line=st.sampled_from([BY_WORD, BY_NUMBER, SYMMETRIC]))
def test_a_damaged_line_names_known_algorithms_and_possible_channels_only(data, line):
    place = data.draw(st.integers(0, len(line) - 1))
    damaged = line[:place] + data.draw(st.characters(codec="ascii")) + line[place + 1 :]
    for choice in parse_tuning_log([damaged]).choices:
        assert choice.message_bytes > 0
        assert choice.channels is None or 1 <= choice.channels <= 64
        assert choice.protocol in {None, "LL", "LL128", "Simple"}


@pytest.mark.parametrize(
    "line",
    [
        BY_WORD.replace("RING", "STAR"),
        BY_WORD.replace("proto LL", "proto LL256"),
        BY_NUMBER.replace("Algo 1", "Algo 7"),
        BY_NUMBER.replace("proto 2", "proto 3"),
        BY_WORD.replace("14336", "0"),
    ],
)
def test_what_nccl_does_not_have_is_not_read(line):
    assert parse_tuning_log([line]).choices == ()
