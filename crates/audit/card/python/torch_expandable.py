"""The same loop with expandable segments: PyTorch maps physical memory into one reserved range."""

import os

os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"

import torch

from expectation import expected, failed
from training import network, step


def main():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")
    for _ in range(50):
        step(model, optimizer, batch)
    torch.cuda.synchronize()
    if not any(segment.get("is_expandable") for segment in torch.cuda.memory_snapshot()):
        failed("PyTorch did not use expandable segments")
    expected(reachable={"at_least": torch.cuda.memory_reserved()}, mentions=["torch_expandable.py"], memory_kinds=["physical"])


main()
