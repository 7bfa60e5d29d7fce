"""Servers of the lab for the draft doctor: with a draft of choice, and one that returns states."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from bench.http import open_session
from bench.model import BASELINE, Timeouts
from bench.plan import make_plan
from bench.scenario import load_scenario
from bench.server import start_server
from bench.sglang import control

LAB = Path(__file__).parents[2] / "scenarios" / "lab.yaml"
MODELS = Path(__file__).parents[1] / "lab" / "models"
BENCH = Path(sys.executable).with_name("bench")
TIMEOUTS = Timeouts(ready_s=300, request_s=120)
CONTEXT_TOK = "512"
"""Shorter than the lab's: the doctor then sends no prompts of 1024 tokens, half of its time."""

# Beginnings as the tiny target was trained on, which it goes on with as its draft expects.
BEGINNINGS = (
    "import os\nimport sys\n\ndef {}():\n",
    "def {}(self):\n",
    "class {}(Exception):\n",
    "    try:\n        {} = int(text)\n    except ValueError:\n        raise\n",
)
WORDS = ("close", "value", "name", "reader", "parse", "index", "encode", "items")
PROMPTS = [beginning.format(word) for word in WORDS for beginning in BEGINNINGS]


def _arguments(arguments, *more):
    return tuple(CONTEXT_TOK if word == "2048" else word for word in arguments) + more


@asynccontextmanager
async def serving(folder, draft, *sets):
    """The lab's server with a draft."""
    asked = [f"draft.path={draft}", "draft.revision=main", *sets]
    launches = make_plan(load_scenario(LAB, asked)).launches
    config = next(launch.server for launch in launches if launch.arm != BASELINE)
    async with _started(replace(config, arguments=_arguments(config.arguments)), folder) as url:
        yield url


@asynccontextmanager
async def returning_states(folder, *ids):
    """The lab's server without a draft, that returns the states of layers `ids`."""
    config = make_plan(load_scenario(LAB)).launches[0].server
    more = ("--enable-return-aux-hidden-states", "--speculative-algorithm", "EAGLE3")
    more += ("--disable-radix-cache", "--return-aux-hidden-state-layer-ids", *map(str, ids))
    wanted = replace(config, arguments=_arguments(config.arguments, *more))
    async with _started(wanted, folder) as url:
        yield url


@asynccontextmanager
async def _started(config, folder):
    folder.mkdir(parents=True, exist_ok=True)
    server = await start_server(config, log_path=folder / "server.log", timeouts=TIMEOUTS)
    try:
        yield server.base_url
    finally:
        await server.stop()


async def doctor(*arguments):
    """`bench doctor`, as typed: exit status and what `--json` says."""
    process = await asyncio.create_subprocess_exec(
        *(BENCH, "doctor", *map(str, arguments), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert out, err.decode()[-3000:]
    return process.returncode, json.loads(out)


async def generated(url, prompt, tokens):
    """A greedy answer: token ids of prompt and answer, and the answer's meta_info."""
    body = {
        "text": prompt,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True},
        "return_prompt_token_ids": True,
        "stream": False,
    }
    async with open_session(url) as session:
        told = json.loads(await control.complete(session, "generate", body, timeout_s=120))
    return told["prompt_token_ids"], told["output_ids"], told["meta_info"]
