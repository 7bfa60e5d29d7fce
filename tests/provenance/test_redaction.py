"""No secret is stored, and no setting is hidden."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.http import is_secret_name, redact
from bench.provenance import redact_argv, redact_environment
from bench.provenance.redaction import REDACTED, redact_text

SECRET = "s3cr3t-Value/42"


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", SECRET],
        ["--admin-api-key", SECRET],
        [f"--api-key={SECRET}"],
        [f"--ssl-keyfile-password={SECRET}"],
        ["--hf-token", SECRET],
        ["--token", SECRET],
        ["env", f"HF_TOKEN={SECRET}", "python3"],
        ["docker", "run", "-e", f"OPENAI_API_KEY={SECRET}"],
        ["bash", "-c", f"export AWS_SECRET_ACCESS_KEY={SECRET}; python3 -m sglang.launch_server"],
        ["bash", "-c", f"python3 -m sglang.launch_server --api-key {SECRET} --port 1"],
        ["bash", "-c", f"python3 -m sglang.launch_server --api-key={SECRET}"],
        ["--header", f"Authorization: Bearer {SECRET}"],
        ["--model-loader-extra-config", f'{{"api_key": "{SECRET}"}}'],
        ["--attach", f"http://user:{SECRET.replace('/', '')}@host:30000"],
        ["--url", f"http://host/v1?api_key={SECRET}&x=1"],
    ],
    ids=lambda argv: " ".join(argv).replace(SECRET, "S"),
)
def test_secrets_leave_the_command_line(argv):
    redacted = redact_argv(argv)
    assert len(redacted) == len(argv)
    assert SECRET not in " ".join(redacted)
    assert SECRET.replace("/", "") not in " ".join(redacted)
    assert REDACTED in " ".join(redacted)


@pytest.mark.parametrize(
    "argv",
    [
        ["--tokenizer-path", "models/x", "--max-total-tokens", "4096"],
        ["--speculative-num-draft-tokens", "4", "--speculative-token-map", "hot.pt"],
        ["--bucket-time-to-first-token", "0.1", "0.2"],
        ["--kt-max-deferred-experts-per-token", "2"],
        ["--ssl-keyfile", "/etc/key.pem"],
        ["--set", "measure.pairs=1", "--only", "load=rate=4"],
        ["python3", "-m", "sglang.launch_server", "--host=127.0.0.1", "key", "token"],
        ["--api-key", "--port", "30000"],
        ["--api-key-env", "MY_KEY", "--api-key-file", "/run/key"],
        ["--set", "server.api_key={env: MY_KEY}", "--set", "server.api_key.file=./key"],
    ],
    ids=" ".join,
)
def test_settings_stay_as_they_are(argv):
    assert redact_argv(argv) == tuple(argv)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=12), max_size=6), st.integers(0, 6))
def test_a_key_is_removed_wherever_it_stands(words, at):
    argv = [*words[:at], "--api-key", SECRET, *words[at:]]
    redacted = redact_argv(argv)
    assert len(redacted) == len(argv)
    assert SECRET not in redacted
    assert redact_argv(redacted) == redacted


def test_the_environment_is_sorted_and_without_secrets():
    variables = {
        "SGLANG_API_KEY": SECRET,
        "NCCL_ALGO": "Ring",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "HF_TOKEN": SECRET,
        "MY_AUTH_TOKEN": SECRET,
        "SGLANG_PROXY": f"http://me:{SECRET.replace('/', '')}@proxy",
        "EMPTY_KEY": "",
    }
    redacted = redact_environment(variables)
    assert list(redacted) == sorted(variables)
    assert redacted["NCCL_ALGO"] == "Ring"
    assert redacted["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert redacted["EMPTY_KEY"] == ""
    assert SECRET not in str(redacted)
    assert SECRET.replace("/", "") not in str(redacted)


def redacted_slowly(text):
    """The text as one reads it that begins at every letter anew: right, and quadratic."""

    def of_one(found):
        is_place = re.match(r"\{\s*(?:env|file)\s*:", found[2])
        return found[0] if is_place or not is_secret_name(found[1]) else f"{found[1]}={REDACTED}"

    return redact(re.sub(r"(-{0,2}[A-Za-z_][\w.-]*)=([^\s\"',;&]+)", of_one, text))


PARTS = ["--", "-", "1", ".", "é", "a", "_KEY", "api-key", "token", "TOKEN", "=", "= ", "'", ";"]


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from([*PARTS, " ", "{env: A}", "x7"]), max_size=14).map("".join))
def test_an_assignment_is_found_wherever_its_name_begins(text):
    assert redact_text(text) == redacted_slowly(text)


@pytest.mark.parametrize("word", ["a", "-", "1", ".", "a.b-", "_KEY", "é1", "-a"])
def test_a_long_word_is_read_once(word):
    # A million letters: read anew from each of them, that would be hours.
    text = word * (1_000_000 // len(word))
    assert redact_text(text) == text
    assert redact_text(f"{text}x_API_KEY={SECRET}").endswith(f"x_API_KEY={REDACTED}")


@pytest.mark.parametrize(
    "name",
    [
        "--api-key",
        "api_key",
        "HF_TOKEN",
        "GITHUB_TOKEN",
        "aws_secret_access_key",
        "watermark_key",
        "DB_PASSWORD",
        "token",
    ],
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "experts_per_token",
        "max_total_tokens",
        "tokenizer",
        "keyfile",
        "monkey",
        "SGLANG_TOKENS",
        "path",
        "compat",
    ],
)
def test_names_of_settings(name):
    assert not is_secret_name(name)


def test_the_mark_is_the_one_of_the_logs():
    assert REDACTED in redact(f"Authorization: Bearer {SECRET}")
