#!/bin/sh
# Starts off.
# SIMULATED: no hardware was measured; every figure is the simulator's.
# From study 20261130T010000Z-kimi-eagle3-1a2b3c of scenario kimi-eagle3.
# Leave speculation off. The best of it, EAGLE3 1-1-2: +0.5 % tok/s over off, 95 % interval −1.5 %
# to +2.6 %, UNDECIDED.
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
  --enable-cache-report
