"""What all tests share."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: workers would fight over the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
