import sys
from pathlib import Path

# The stand-ins of the runner's tests are used here too.
sys.path.append(str(Path(__file__).parents[1] / "runner"))
