"""Has the lab's SGLang resolve many command lines and list its options.

    python tests/lab/python.py tests/lab/resolve_many.py < asked.jsonl > answers.jsonl

Reads a JSON object a line: `argv`, and optionally `gpu`: a class of GPUs that SGLang is made to
believe in while it resolves. Writes an object a line, in order: `resolved` or `error`. Each
command line has a process of its own, forked after SGLang was imported. A last line has its
`options`.
"""

import argparse
import json
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")

from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.arg_groups import memory_hook  # noqa: E402
from sglang.srt.server_args import ServerArgs, prepare_server_args  # noqa: E402

NO_GPU = dict.fromkeys(
    (
        *("is_cuda", "is_sm90", "is_sm100", "is_sm100_or_sm110", "is_sm110", "is_sm120"),
        *("is_blackwell", "is_hopper_with_cuda_12_3", "has_flashinfer"),
    ),
    False,
)
ANY_GPU = NO_GPU | {"is_cuda": True, "has_flashinfer": True}
GPUS = {
    "hopper": ANY_GPU | {"is_sm90": True, "is_hopper_with_cuda_12_3": True},
    "sm100": ANY_GPU | {"is_sm100": True, "is_sm100_or_sm110": True, "is_blackwell": True},
    "sm120": ANY_GPU | {"is_sm120": True, "is_blackwell": True},
    "other": ANY_GPU,
}
SM = {"hopper": 90, "sm100": 100, "sm120": 120, "other": 80}
MEMORY_MIB = 141 * 1024


def main() -> None:
    """Answer every line."""
    lines = list(sys.stdin)
    resolve(json.loads(lines[0]) | {"gpu": "cpu"})  # imports what it needs, once for all
    for line in lines:
        print(json.dumps(in_a_fork(json.loads(line)), default=str), flush=True)
    print(json.dumps({"options": list_options()}))


def in_a_fork(asked: dict) -> dict:
    """The answer of a child, which may change what it likes."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            pipe.write(json.dumps(resolve(asked), default=str))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"error": "the process died"}


def resolve(asked: dict) -> dict:
    """What SGLang makes of one command line, in this process."""
    gpu = asked.get("gpu", "cpu")
    if gpu in GPUS:
        facts = GPUS[gpu] | {
            "device_sm": SM[gpu],
            "device_capability": divmod(SM[gpu], 10),
        }
        runtime_context.override_platform(**facts).install()
        memory_hook.get_device_memory_capacity = lambda *_: MEMORY_MIB
    try:
        server_args = prepare_server_args(asked["argv"])
        logging.disable(logging.CRITICAL)  # prepare_server_args has just set it up
        server_args.resolve_once()
        server_args.check_server_args()
    except SystemExit as ended:
        return {"error": f"exit status {ended.code}"}
    except Exception as error:  # noqa: BLE001  # whatever SGLang refuses with
        return {"error": f"{type(error).__name__}: {error}"}
    return {"resolved": server_args.resolved_dict()}


def list_options() -> list[str]:
    """Every option of SGLang's parser, as bench/sglang/arguments/options.txt has them."""
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    lines = []
    kinds = {"int": "int", "float": "float", "human_readable_int": "size"}
    kinds |= dict.fromkeys(("loads", "json_list_type", "parse_cuda_graph_config_arg"), "json")
    for action in parser._actions:
        if action.dest == "help":
            continue
        kind = kinds.get(getattr(action.type, "__name__", None), "text")
        if action.nargs == 0:
            kind = "flag"
        elif action.nargs in {"+", "*"}:
            kind += "s"
        kind += "?" if action.nargs in {"*", "?"} else ""
        choices = (
            [] if action.choices is None else ["=" + ",".join(sorted(map(str, action.choices)))]
        )
        lines.append(" ".join((action.dest, kind, *action.option_strings, *choices)))
    return lines


if __name__ == "__main__":
    main()
