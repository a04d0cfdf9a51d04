"""Fills the GPU until the driver refuses, catches the error and frees everything: a diagnosis on stderr, and no leak."""

import torch

from expectation import expected, failed

GIB = 1 << 30


def fill():
    blocks = []
    try:
        while True:
            blocks.append(torch.empty(8 * GIB, dtype=torch.uint8, device="cuda"))
            if len(blocks) > 100:
                failed("the driver never refused")
    except torch.cuda.OutOfMemoryError:
        return len(blocks)


def main():
    if fill() == 0:
        failed("not even one block of 8 GiB")
    torch.cuda.empty_cache()
    # PyTorch asks again after it has freed its cache, from another call site of its own.
    expected(reachable={"at_least": 0}, diagnoses={"at_least": 1}, stderr=["torch_out_of_memory.py"])


main()
