"""The legal, distinct configurations of a scenario's `tune:` block.

space = survey(axes, server)
space.configurations  # distinct by what the server will really run with
"""

from __future__ import annotations

from tuner.space.configuration import Configuration
from tuner.space.points import Axes, Server, Setting, Space, effective, settings_of, survey
from tuner.space.reading import numbers, read_tune
from tuner.space.schema import Tune

__all__ = [
    "Axes",
    "Configuration",
    "Server",
    "Setting",
    "Space",
    "Tune",
    "effective",
    "numbers",
    "read_tune",
    "settings_of",
    "survey",
]
