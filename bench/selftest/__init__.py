"""The load client against a server that knows the truth (docs/instrument.md).

`bench selftest` tells how exact the client is on this machine, and up to which load; `bench run`
asks for a short proof of that before it measures.
"""
