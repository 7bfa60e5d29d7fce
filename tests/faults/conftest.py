import sys
from pathlib import Path

# The stand-ins of the runner's tests and the command of the command line's are used here too.
for room in ("runner", "cli"):
    sys.path.append(str(Path(__file__).parents[1] / room))
