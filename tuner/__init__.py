"""Searches for the settings that really are faster; measures through `bench.runner` alone."""
