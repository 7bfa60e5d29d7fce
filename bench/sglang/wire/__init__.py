"""What goes over the wire to SGLang's three generation APIs, and what comes back in one event.

Written against SGLang 0.5.23 (srt/entrypoints/openai/protocol.py, srt/managers/io_struct.py); the
reader also takes what older releases and other OpenAI-compatible servers send.
"""

from __future__ import annotations

from bench.sglang.wire.chunks import DONE, Chunk, SpecCounters, decode_chunk
from bench.sglang.wire.payload import WireError, error_in_body
from bench.sglang.wire.request import PATHS, request_body, with_rid

__all__ = [
    "DONE",
    "PATHS",
    "Chunk",
    "SpecCounters",
    "WireError",
    "decode_chunk",
    "error_in_body",
    "request_body",
    "with_rid",
]
