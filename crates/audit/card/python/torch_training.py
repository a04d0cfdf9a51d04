"""A PyTorch training loop: everything that is alive at exit is cached by PyTorch's allocator, so reachable, and nothing is lost."""

import torch

from expectation import expected
from training import network, step


def main():
    model = network()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")
    for _ in range(50):
        step(model, optimizer, batch)
    torch.cuda.synchronize()
    expected(reachable={"at_least": torch.cuda.memory_reserved()}, mentions=["torch_training.py", "network"], reports=1)


main()
