"""The runner of cases fails where it should."""

from __future__ import annotations

import json

import pytest
from case_fields import AnyOf, AnyOrder, agrees, mistakes, read_expected
from test_cases import check


def folder(tmp_path, kind="decode_rate", **expected):
    (tmp_path / "case.json").write_text(json.dumps({"kind": kind, "inputs": ["input.json"]}))
    given = {"prompt_tokens": 100, "output_tokens": 11, "ttft_s": 2.0, "e2e_s": 3.0}
    (tmp_path / "input.json").write_text(json.dumps(given))
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    return tmp_path


def test_a_right_case_passes(tmp_path):
    check(folder(tmp_path, decode_tok_s=10.0, wrong_rate=3.67, why="prefill", naive_x=1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "crystal_ball"}, "unknown kind 'crystal_ball'; known: stream, event_gaps"),
        ({"decode_tok_s": 11.0}, "decode_tok_s: expected 11.0, found 10.0"),
        ({"decode_tok_s": None}, "expected None, found 10.0"),
        ({"decode_speed": 10.0}, "decode_speed: no check finds it"),
    ],
)
def test_a_wrong_case_fails(tmp_path, changes, said):
    with pytest.raises(pytest.fail.Exception, match=said):
        check(folder(tmp_path, **changes))


@pytest.mark.parametrize(
    ("text", "found", "agree"),
    [
        ("9.43", 9.4274, True),
        ("9.43", 9.48, False),
        ("2222.2", 2222.22, True),
        ("0.018036", 0.0180361, True),
        ("2.4444", 2.44444, True),
        ("100", 100.4, True),
        ("1000", 1006.0, False),
        ("13", 14, False),
        ("13", 13, True),
        ("0.0", None, False),
        ("null", 0, False),
        ("null", None, True),
        ("false", False, True),
        ("false", 0, False),
        ("1", True, False),
        ('"ok"', "ok", True),
        ("[12, 12.0]", (12.0, 12.0), True),
        ("[12, 12]", (12.0,), False),
        ('"eof"', frozenset({"eof", "cut"}), True),
        ('"x"', frozenset({"eof", "cut"}), False),
        ('["b", "a"]', AnyOrder({"a", "b"}), True),
        ('["b", "a", "a"]', AnyOrder({"a", "b"}), False),
        ('["a"]', AnyOrder({"a", "b"}), False),
        ('{"0": 1.5}', AnyOf((1.5, {"0": 1.5})), True),
        ("1.5", AnyOf((1.5, {"0": 1.5})), True),
        ("2.5", AnyOf((1.5, {"0": 1.5})), False),
    ],
)
def test_what_agrees(text, found, agree):
    assert agrees(read_expected(text), found) is agree


def test_only_explanations_are_left_out():
    expected = dict.fromkeys(
        ("wrong_a", "naive_b", "mean_wrong", "why", "note", "reason", "reasons", "whys"), 1
    )
    assert [line.split(":")[0] for line in mistakes(expected, {})] == ["reasons", "whys"]
