"""Two ranks of a job on one GPU: `torchrun --standalone --nproc-per-node 2 ranks.py`. Rank 1 keeps the activations of every step; rank 0 does not."""

import os

import torch
import torch.distributed as dist

STEPS = 40


def forward(model, batch, kept):
    hidden = model[1](model[0](batch))
    if dist.get_rank() == 1:
        kept.append(hidden.detach().clone())
    return model[2](hidden)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    batch = torch.randn(512, 1024, device="cuda")
    kept = []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = (forward(model, batch, kept) - batch).square().mean()
        loss.backward()
        for parameter in model.parameters():
            gradient = parameter.grad.cpu()
            dist.all_reduce(gradient)
            parameter.grad.copy_(gradient / dist.get_world_size())
        optimizer.step()
    torch.cuda.synchronize()
    print(f"rank {os.environ['RANK']}: {torch.cuda.memory_allocated() >> 20} MiB", flush=True)
    dist.destroy_process_group()


main()
