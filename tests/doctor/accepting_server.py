"""A server that answers as SGLang does and accepts drafts as it is told, by the prompt."""

import json
import random
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from local_http import serving_on

LAUNCH = (
    "--model-path tiny --speculative-algorithm EAGLE3 --speculative-draft-model-path {draft} "
    "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 "
    "--max-running-requests 64"
)


def histogram_of(accepted, tokens, seed):
    """Steps that make `tokens` tokens, draft k + 1 accepted with `accepted[k]` after draft k."""
    draws = random.Random(seed)
    histogram = [0] * (len(accepted) + 1)
    made = 1
    while made < tokens:
        depth = 0
        while depth < len(accepted) and draws.random() < accepted[depth]:
            depth += 1
        histogram[depth] += 1
        made += depth + 1
    return histogram


class Accepting:
    """What it does, and what it was asked.

    Attributes:
        accepted: From (prompt, its words) to the conditional acceptance of draft 1, 2, ….
        told: The body of /server_info.
        calls: (method, path) of each request, in order.
    """

    def __init__(self, accepted, *, draft="nowhere", **told):
        self.accepted = accepted
        self.fails = ()
        self.calls = []
        self.told = {
            "served_model_name": "tiny",
            "version": "0.5.23",
            "context_length": 16384,
            "max_running_requests": 48,
            "max_total_num_tokens": 200_000,
            "max_req_input_len": 16378,
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": draft,
            "speculative_num_steps": 3,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": 4,
            "launch_command": LAUNCH.format(draft=draft),
            "internal_states": [{}],
            **told,
        }

    def chat(self, body):
        prompt = "\n".join(message["content"] for message in body["messages"])
        assert body["temperature"] == 0
        assert body["stream"] is False
        words = len(prompt.split())
        found = self.accepted(prompt, words)
        answer = {
            "object": "chat.completion",
            "choices": [
                {"message": {"role": "assistant", "content": "x"}, "finish_reason": "length"}
            ],
            "usage": {"prompt_tokens": words, "completion_tokens": 192},
        }
        if found is not None:
            histogram = histogram_of(found, body["max_completion_tokens"], prompt)
            answer["sglext"] = {
                "spec_tokens_details": {
                    "spec_verify_ct": sum(histogram),
                    "spec_num_correct_drafts": sum(k * n for k, n in enumerate(histogram)),
                    "spec_num_proposed_drafts": 3 * sum(histogram),
                    "spec_correct_drafts_histogram": histogram,
                }
            }
        return answer

    @contextmanager
    def serving(self):
        """Its base URL, while it serves."""
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                world.calls.append(("GET", self.path))
                self.answer(200, world.told)

            def do_POST(self):
                world.calls.append(("POST", self.path))
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if len(world.calls) in world.fails:
                    self.answer(500, {"error": {"message": "no"}})
                    return
                self.answer(200, world.chat(body))

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *arguments):
                pass

        with serving_on(Handler) as url:
            yield url
