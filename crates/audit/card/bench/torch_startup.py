"""The smallest PyTorch program. Prints when the GPU is ready, and when it begins to exit."""

import json
import time

import torch

torch.zeros(1).cuda()
torch.cuda.synchronize()
print(json.dumps({"ready": time.monotonic(), "ends": time.monotonic()}), flush=True)
