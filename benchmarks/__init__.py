"""Measurements of specdyno itself, run by hand: `python -m benchmarks.NAME`; no tests."""
