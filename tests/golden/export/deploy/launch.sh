#!/bin/sh
# Starts EAGLE3 3-1-4.
# From study 20261130T010000Z-kimi-eagle3-1a2b3c of scenario kimi-eagle3.
# Deploy EAGLE3 3-1-4: +74.0 % tok/s over off, 95 % interval +70.5 % to +77.5 %, FASTER.
export NCCL_DEBUG=WARN
exec python3 -m sglang.launch_server \
  --model-path moonshotai/Kimi-K2.5 \
  --tp-size 8 \
  --trust-remote-code \
  --mem-fraction-static 0.88 \
  --max-running-requests 64 \
  --cuda-graph-max-bs-decode 64 \
  --attention-backend flashinfer \
  --enable-metrics \
  --enable-cache-report \
  --speculative-algorithm EAGLE3 \
  --speculative-draft-model-path /models/kimi-k2.5-eagle3-rewired \
  --speculative-num-steps 3 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4
