"""Data-loader workers: two processes that are forked after CUDA was initialized and never call it. One report, the parent's."""

import torch

from expectation import expected
from training import network, step


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((1024,), float(index))


def main():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True)
    for batch in loader:
        step(model, optimizer, batch.cuda(non_blocking=True))
    torch.cuda.synchronize()
    expected(reachable={"at_least": torch.cuda.memory_reserved()}, mentions=["torch_workers.py"], reports=1)


if __name__ == "__main__":
    main()
