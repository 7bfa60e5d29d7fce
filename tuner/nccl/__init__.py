"""NCCL: at which loads its variables can matter at all, and which of them are faster there.

question = nccl_question(loaded)       # messages, transports, what SGLang sets: nothing is started
ranking = rank_nccl(loaded, rounds=5)  # minutes, without the model
print(ranking_text(ranking))           # or ranking_json(ranking)
"""

from __future__ import annotations

from tuner.nccl.asking import NcclQuestion, nccl_question
from tuner.nccl.messages import Draft, Message, Step, Widths, message_bytes, steps_of
from tuner.nccl.rank import rank_nccl
from tuner.nccl.ranking import best_of, crossovers, fastest_by_size, single_best
from tuner.nccl.results import NcclRanking
from tuner.nccl.text import ranking_json, ranking_text
from tuner.nccl.transport import Comms, StepTransport, Taken, comms_of, where_nccl_matters

__all__ = [
    "Comms",
    "Draft",
    "Message",
    "NcclQuestion",
    "NcclRanking",
    "Step",
    "StepTransport",
    "Taken",
    "Widths",
    "best_of",
    "comms_of",
    "crossovers",
    "fastest_by_size",
    "message_bytes",
    "nccl_question",
    "rank_nccl",
    "ranking_json",
    "ranking_text",
    "single_best",
    "steps_of",
    "where_nccl_matters",
]
