"""One BLAS thread: matrices this small lose by more, and the machine is shared."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.append(str(Path(__file__).parents[1] / "draft"))  # its checkpoints are these tests' too
