"""Where the learners of the tests play: on the CPU, or on what ENVGEN_TEST_DEVICE says (`make test-gpu`)."""
import os

import torch

DEVICE = os.environ.get("ENVGEN_TEST_DEVICE", "cpu")
if DEVICE != "cpu":                    # the tests want the same bits, which a GPU gives only when it is told to
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
