"""`tuner nccl`: rank NCCL settings at a model's message sizes, without the model.

ranking = rank_nccl(load_scenario(path))
print(ranking_text(ranking))       # or json.dumps(ranking_json(ranking))
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.errors import InputError, Interrupted, MachineError
from tuner.nccl.asking import NcclQuestion, nccl_question
from tuner.nccl.ranking import crossovers
from tuner.nccl.results import Chosen, NcclRanking, control_of, rank_loads, times_by_size
from tuner.nccl.rounds import measure_rounds, variables_of
from tuner.nccl.settings import DEFAULT
from tuner.nccl.starting import perf_start, probe_torch, torch_start
from tuner.nccl.tuning_log import parse_tuning_log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench.scenario import LoadedScenario
    from tuner.nccl.starting import Probe, Start

ROUNDS: Final = 5
TIMEOUT_S: Final = 180.0
"""What one start of the ranks may take, in seconds: importing PyTorch from a slow disk counts."""
_PROGRAM: Final = "all_reduce_perf"
_PLUMBING_RANKS: Final = 2
_PLUMBING_SETTINGS: Final = 1
_PLUMBING_BYTES: Final = 1 << 20


def rank_nccl(
    loaded: LoadedScenario,
    *,
    rounds: int = ROUNDS,
    nccl_tests: Path | None = None,
    timeout_s: float = TIMEOUT_S,
    say: Callable[[str], None] = lambda _line: None,
) -> NcclRanking:
    """Rank the NCCL settings of a scenario, where NCCL has anything to do.

    Args:
        loaded: The scenario.
        rounds: How often every setting is started; with one there is no verdict.
        nccl_tests: all_reduce_perf, or the folder that it is in; None: PyTorch of the server's
            Python where the scenario tells it, else all_reduce_perf on the PATH.
        timeout_s: What one start may take.
        say: Told what goes on, a line each.

    Raises:
        InputError: The scenario does not tell enough, or there is nothing to measure with.
        MachineError: The setting in use does not run.
        Interrupted: Ctrl-C; what was started has ended.
    """
    if rounds < 1:
        raise InputError(f"{rounds} rounds asked for; at least 1 is needed", hint="Give 5.")
    question = nccl_question(loaded)
    try:
        return asyncio.run(_rank(question, rounds, nccl_tests, timeout_s, say))
    except KeyboardInterrupt:
        raise Interrupted("the ranking was stopped; its processes have ended") from None


async def _rank(
    question: NcclQuestion,
    rounds: int,
    nccl_tests: Path | None,
    timeout_s: float,
    say: Callable[[str], None],
) -> NcclRanking:
    matter = [step for step in question.steps if step.matters]
    if not matter and question.comms.gpu != "cpu":
        return NcclRanking(
            question=question,
            why_unranked="no message goes through NCCL, so none of its variables can matter: "
            "nothing was measured",
        )
    if question.comms.nodes > 1:
        return NcclRanking(
            question=question,
            why_unranked=f"the ranks are on {question.comms.nodes} machines, and this ranks those "
            "of one: nothing was measured",
        )
    sizes = sorted({m.message_bytes for step in matter for m in step.nccl_messages})
    ranks = question.comms.tp
    program = _program(nccl_tests, question)
    if program is not None:
        start = perf_start(
            program,
            ranks=ranks,
            sizes=sizes,
            element_bytes=question.element_bytes,
            timeout_s=timeout_s,
        )
        return await ranked_by(
            start, question, rounds=rounds, tool=f"nccl-tests {program}", say=say
        )
    environment = variables_of(question, question.choice.default)
    probe = await probe_torch(question.python, environment, timeout_s=timeout_s)
    if probe.failure is not None:
        raise MachineError(
            f"PyTorch of {' '.join(question.python)} asked for; {probe.failure}",
            hint="Name the Python in server.launcher.resolve, or give --nccl-tests PATH.",
        )
    tool = f"torch.distributed of PyTorch {probe.torch}"
    if (no_gpus := _why_gloo(question, probe)) is not None:
        return await _plumbing(question, tool, no_gpus, timeout_s, say)
    start = torch_start(
        question.python,
        backend="nccl",
        ranks=ranks,
        sizes=sizes,
        element_bytes=question.element_bytes,
        timeout_s=timeout_s,
    )
    return await ranked_by(
        start, question, rounds=rounds, tool=f"{tool}, NCCL {probe.nccl}", say=say
    )


async def ranked_by(
    start: Start,
    question: NcclQuestion,
    *,
    rounds: int,
    tool: str,
    say: Callable[[str], None] = lambda _line: None,
) -> NcclRanking:
    """Measure with `start` and rank; what NCCL chose is read in starts of their own."""
    measured = await measure_rounds(start, question, rounds=rounds, say=say)
    loads = rank_loads(question, measured.rounds)
    wanted = [DEFAULT]
    for load in loads:
        wanted += [load.best.name or DEFAULT, *(draft.winner for draft in load.drafts)]
    say("reading what NCCL chose, in starts that are not scored")
    chosen = [await _chosen(start, question, name) for name in dict.fromkeys(wanted)]
    return NcclRanking(
        question=question,
        tool=tool,
        backend="nccl",
        measured=measured,
        loads=loads,
        control=control_of(question, measured.rounds),
        crossovers=crossovers(times_by_size(measured.rounds)),
        chosen=tuple(chosen),
    )


async def _chosen(start: Start, question: NcclQuestion, name: str) -> Chosen:
    settings = (question.choice.default, *question.choice.others)
    setting = next(one for one in settings if one.name == name)
    started = await start(variables_of(question, setting), "log")
    log = parse_tuning_log(started.log)
    if not log.choices:
        why = started.failure or "NCCL's log names no choice: its version may not print them"
        return Chosen(setting=name, failure=why)
    taken = dict(log.set_variables)
    missing = tuple(variable for variable, _ in setting.environment if variable not in taken)
    return Chosen(setting=name, choices=log.choices, not_taken=missing if taken else ())


# ------------------------------------------------------------------------------- what measures it


def _program(nccl_tests: Path | None, question: NcclQuestion) -> str | None:
    """all_reduce_perf where it is to be used."""
    if nccl_tests is not None:
        found = nccl_tests / _PROGRAM if nccl_tests.is_dir() else nccl_tests
        program = shutil.which(str(found))
        if program is None:
            raise InputError(
                f"nccl-tests asked for in {nccl_tests}; there is no program to run",
                hint=f"Give the path of {_PROGRAM}, or the folder it is in (nccl-tests/build).",
            )
        return program
    if question.python:
        return None
    if question.is_elsewhere:
        raise InputError(
            "all-reduces asked for; the scenario's launcher may start its server on another "
            "machine, and names no Python there",
            hint="Run tuner nccl on the machine with the GPUs, with a scenario whose launcher is "
            "local.",
        )
    program = shutil.which(_PROGRAM)
    if program is None:
        raise InputError(
            f"all-reduces asked for; the scenario names no Python with PyTorch, and {_PROGRAM} is "
            "not on the PATH",
            hint="Name the Python in server.launcher.resolve, e.g. [python3], or give "
            "--nccl-tests PATH.",
        )
    return program


def _why_gloo(question: NcclQuestion, probe: Probe) -> str | None:
    """Why NCCL cannot be asked; None: it can."""
    if question.comms.gpu == "cpu":
        return "the scenario's server runs on a CPU, where there is no NCCL"
    if probe.gpus < question.comms.tp:
        return f"{question.comms.tp} GPUs are wanted, and PyTorch sees {probe.gpus}"
    return None if probe.nccl is not None else "this PyTorch has no NCCL"


async def _plumbing(
    question: NcclQuestion, tool: str, why: str, timeout_s: float, say: Callable[[str], None]
) -> NcclRanking:
    """One round on gloo, few and small messages: the way is proven, and nothing is ranked."""
    sizes = {m.message_bytes for step in question.steps for m in step.step.messages}
    small = sorted(sizes)[:4]
    small = [size for size in small if size <= _PLUMBING_BYTES] or small[:1]
    start = torch_start(
        question.python,
        backend="gloo",
        ranks=_PLUMBING_RANKS,
        sizes=small,
        element_bytes=question.element_bytes,
        timeout_s=timeout_s,
    )
    choice = replace(question.choice, others=question.choice.others[:_PLUMBING_SETTINGS])
    measured = await measure_rounds(start, replace(question, choice=choice), rounds=1, say=say)
    good = sum(len(one.default) + len(one.settings) for one in measured.rounds)
    proven = (
        f"{good} of {measured.starts} starts of {_PLUMBING_RANKS} ranks on gloo went the whole "
        f"way ({len(small)} sizes, sums right)"
    )
    return NcclRanking(
        question=question,
        why_unranked=f"{why}. {proven}; gloo's times say nothing of NCCL, so they are not ranked",
        tool=tool,
        backend="gloo",
        measured=measured,
    )
