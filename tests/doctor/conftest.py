"""One BLAS thread: matrices this small lose by more, and the machine is shared."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
