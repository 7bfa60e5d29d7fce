"""A study as Optuna holds it, and who is at work on it."""
