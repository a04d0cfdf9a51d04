"""The small network that the PyTorch programs train."""

import torch


def network(width=1024, hidden=4096):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, width)).cuda()


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss
