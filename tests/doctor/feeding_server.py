"""A server that returns hidden states as SGLang does with --enable-return-aux-hidden-states."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from local_http import serving_on


class Feeding:
    """What it does, and what it was asked.

    Attributes:
        states: From token ids to states [n, slots × width].
        writes: From a prompt to the token ids of prompt and answer, and how many are the prompt's.
        asked: Every body of /generate.
    """

    def __init__(self, states, *, writes=None, architecture="LlamaForCausalLM", **info):
        self.states, self.writes, self.asked = states, writes, []
        self.keeps = None
        self.info = {"enable_return_aux_hidden_states": True, **info}
        self.model = {"model_path": "tiny", "architectures": [architecture]}

    def generate(self, body):
        self.asked.append(body)
        assert body["sampling_params"]["temperature"] == 0
        if "text" in body:
            ids, prompt_ct = self.writes(body["text"])
            meta = {"prompt_tokens": prompt_ct, "prompt_token_ids": ids[:prompt_ct]}
            return {"text": "", "output_ids": ids[prompt_ct:], "meta_info": meta}
        rows = self.states(body["input_ids"]).tolist()[: self.keeps]
        return {"text": "", "output_ids": [1], "meta_info": {"hidden_states": [rows]}}

    @contextmanager
    def serving(self):
        """Its base URL, while it serves."""
        world = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.answer(world.info if self.path == "/server_info" else world.model)

            def do_POST(self):
                length = int(self.headers["Content-Length"])
                self.answer(world.generate(json.loads(self.rfile.read(length))))

            def answer(self, body):
                text = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *arguments):
                pass

        with serving_on(Handler) as url:
            yield url
