"""A PyTorch training step: `torch_step.py STEPS`. Prints when the GPU is ready, the median time of a synchronized step in nanoseconds, and when
the program begins to exit. With a second word, `turns`, it runs so many steps for each line of standard input and prints their median."""

import json
import statistics
import sys
import time

import torch

WARM_UP = 10


def main():
    steps, in_turns = int(sys.argv[1]), sys.argv[2:] == ["turns"]
    torch.zeros(1).cuda()
    torch.cuda.synchronize()
    ready = time.monotonic()
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(4) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())]).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(256, 1024, device="cuda")

    def step():
        torch.cuda.synchronize()
        began = time.perf_counter_ns()
        optimizer.zero_grad(set_to_none=True)
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        return time.perf_counter_ns() - began

    def median():
        return statistics.median([step() for _ in range(steps)])

    for _ in range(WARM_UP):
        step()
    if in_turns:
        for _ in sys.stdin:
            step()
            print(json.dumps({"value": median()}), flush=True)
    else:
        value = median()
        print(json.dumps({"ready": ready, "value": value, "ends": time.monotonic()}), flush=True)


main()
