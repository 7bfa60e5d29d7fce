"""Probes of a draft: on a running server, and on captured hidden states."""
