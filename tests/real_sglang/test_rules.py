"""What the rules of bench.sglang.arguments rest on, held against the real SGLang."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.sglang.arguments import parse_arguments

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "tests" / "sglang"))

from rule_cases import CASES, CONFIGS, command_line, name_of  # noqa: E402

pytestmark = [pytest.mark.sglang, pytest.mark.timeout(300)]

LAB = ROOT / "tests" / "lab"
ON_A_CPU = ["--grammar-backend", "none", "--sampling-backend", "pytorch"]


@pytest.fixture(scope="module")
def answers(lab, tmp_path_factory):
    """What SGLang makes of every case."""
    folder = tmp_path_factory.mktemp("models")
    for name, config in CONFIGS.items():
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
    asked = "".join(
        json.dumps({"argv": [*command_line(case, f"{folder}/"), *ON_A_CPU], **case}) + "\n"
        for case in CASES
    )
    done = subprocess.run(
        [sys.executable, LAB / "python.py", LAB / "resolve_many.py"],
        input=asked,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    lines = done.stdout.replace(f"{folder}/", "").splitlines()
    return dict(zip([*map(name_of, CASES), "options"], map(json.loads, lines), strict=True))


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_case(case, answers):
    answer = answers[name_of(case)]
    if "refused" in case:
        assert "error" in answer
        assert answer["error"] != "the process died"
        return
    assert "error" not in answer, answer
    becomes = case.get("becomes", {})
    assert {dest: answer["resolved"][dest] for dest in becomes} == becomes


def test_the_options_are_those_of_its_parser(answers):
    listed = ROOT / "bench" / "sglang" / "arguments" / "options.txt"
    assert answers["options"]["options"] == listed.read_text().splitlines()


def test_every_option_is_read_under_its_name(answers):
    resolved = next(answer["resolved"] for answer in answers.values() if "resolved" in answer)
    for case in CASES:
        if "resolved" in answers[name_of(case)]:
            assert set(parse_arguments(command_line(case))) <= set(resolved)
