"""A simulated SGLang server, run as a process: `python -m bench.simulator`; see docs/simulator.md.

It has SGLang's command line, HTTP API, log and metrics (held to recordings of the real one by
tests), and takes its step times from `bench.physics`. Nothing imports this package.
"""
