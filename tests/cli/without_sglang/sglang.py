"""Stands before any SGLang of this machine, so that tests print the same everywhere."""

raise ImportError("not for tests")
