"""A PyTorch training step: `torch_step.py STEPS`. Prints when the GPU is ready, the median time of a synchronized step in nanoseconds, and when
the program begins to exit."""

import json
import statistics
import sys
import time

import torch

WARM_UP = 10


def main():
    steps = int(sys.argv[1])
    torch.zeros(1).cuda()
    torch.cuda.synchronize()
    ready = time.monotonic()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")
    times = []
    for number in range(steps + WARM_UP):
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        if number >= WARM_UP:
            times.append(time.perf_counter_ns() - began)
    print(json.dumps({"ready": ready, "value": statistics.median(times), "ends": time.monotonic()}), flush=True)


main()
