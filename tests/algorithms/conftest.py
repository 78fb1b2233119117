"""One thread: tests run side by side, and threads that wait for a core cost seconds."""

import torch

torch.set_num_threads(1)
