"""A validation loop without `no_grad` that keeps every loss, and so its graph: reachable, not lost, and growing at the
line that runs the network. 8 MiB a step."""

import torch

from expectation import expected
from training import network

losses = []


def validate(model, batch):
    for _ in range(300):
        losses.append((model(batch) - batch).square().mean())


model = network(width=256, hidden=256)
validate(model, torch.randn(2048, 256, device="cuda"))
torch.cuda.synchronize()
expected(reachable={"at_least": torch.cuda.memory_reserved()}, grows="torch_keeps_losses.py", mentions=["torch_keeps_losses.py"])
