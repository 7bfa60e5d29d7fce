"""Load: prompts, arrivals, streams and the worker processes that send requests and time them."""
