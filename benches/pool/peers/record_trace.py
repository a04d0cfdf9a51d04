#!/usr/bin/env python3
"""Records every allocation and free of a PyTorch training run, for the work `trace` of the benchmark `pool`.

    python3 record_trace.py OUT.txt.gz [--steps 60] [--width 1280] [--layers 16] [--tokens 16384] [--seed 1]

The run: a GPT-like model (bf16 autocast, AdamW, gradient clipping) on batches of varying length, as batches of real text
are: of each step the sequences have another length, and the batch as many of them as fit a number of tokens. In between a
validation pass, and text that is generated with a cache of keys and values that grows by concatenation. Another stream
copies the next batch in, as a data loader does.

The trace: lines of a text, compressed with gzip. `SIZE` or `SIZE,STREAM` is an allocation of so many bytes on a stream
(0: the first that is seen), `-N` frees the Nth last of all allocations so far. Lines with `#` are comments. Sizes are
what the program asked for, before PyTorch rounds them.
"""

import argparse
import gzip
import json
import random
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.before_mlp = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before_attention(x)).split(width, dim=2)
        q, k, v = (t.view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for t in (q, k, v))
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], dim=2), torch.cat([cache[1], v], dim=2)
            cache[:] = [k, v]
        causal = length > 1
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.before_mlp(x)))), 0.1, self.training)


class Model(nn.Module):
    def __init__(self, vocabulary, width, layers, longest):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, begin=0, caches=None):
        positions = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for i, block in enumerate(self.blocks):
            x = block(x, None if caches is None else caches[i])
        return self.head(self.last(x))


def loss_of(model, batch):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        logits = model(batch[:, :-1])
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


@torch.no_grad()
def generate(model, prompt, count):
    caches = [[] for _ in model.blocks]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        tokens, begin = prompt, 0
        for _ in range(count):
            logits = model(tokens, begin, caches)
            begin += tokens.shape[1]
            tokens = logits[:, -1:].argmax(dim=2)
    return tokens


def train(options):
    torch.manual_seed(options.seed)
    numbers = random.Random(options.seed)
    vocabulary, longest = 32000, 2048
    loader = torch.cuda.Stream()

    def batch():
        """A batch of about so many tokens, copied in on another stream."""
        length = min(longest, max(64, int(numbers.lognormvariate(6.3, 0.6))))
        host = torch.randint(vocabulary, (max(1, options.tokens // length), length + 1)).pin_memory()
        with torch.cuda.stream(loader):
            tokens = host.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(loader)
        tokens.record_stream(torch.cuda.current_stream())
        return tokens

    model = Model(vocabulary, options.width, options.layers, longest + 1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    for step in range(options.steps):
        model.train()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(model, batch())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 9:
            model.eval()
            with torch.no_grad():
                validation = sum(loss_of(model, batch()).item() for _ in range(2)) / 2
            generate(model, batch()[:4, :64], 32)
            print(f"step {step + 1}: loss {loss.item():.3f}, validation {validation:.3f}", file=sys.stderr)
    torch.cuda.synchronize()


def lines(entries):
    """The trace's lines, and what it contains."""
    numbers, streams, out = {}, {}, []
    count = live = peak = frees = unknown = 0
    for entry in entries:
        action, address, size = entry["action"], entry.get("addr"), entry.get("size", 0)
        if action == "alloc":
            if size == 0:
                continue
            stream = streams.setdefault(entry["stream"], len(streams))
            numbers[address] = (count, size)
            count += 1
            live += size
            peak = max(peak, live)
            out.append(f"{size},{stream}" if stream else str(size))
        elif action == "free_requested":
            if address not in numbers:
                unknown += 1
                continue
            number, size = numbers.pop(address)
            live -= size
            frees += 1
            out.append(f"-{count - number}")
    facts = {"allocations": count, "frees": frees, "streams": len(streams), "live_peak_bytes": peak, "frees_of_unknown_blocks": unknown}
    return out, facts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=16384, help="in a batch")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=50_000_000)
    begin = time.monotonic()
    train(options)
    seconds = time.monotonic() - begin
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    text, facts = lines(snapshot["device_traces"][0])
    facts |= {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name(),
        "torch_reserved_peak_bytes": torch.cuda.max_memory_reserved(),
        "torch_allocated_peak_bytes": torch.cuda.max_memory_allocated(),
        "command": f"record_trace.py --steps {options.steps} --width {options.width} --layers {options.layers} "
        f"--tokens {options.tokens} --seed {options.seed}",
    }
    with gzip.GzipFile(options.out, "wb", compresslevel=9, mtime=0) as file:
        file.write(f"# {json.dumps(facts)}\n".encode())
        file.write(("\n".join(text) + "\n").encode())
    print(json.dumps(facts | {"seconds": round(seconds, 1)}))


if __name__ == "__main__":
    main()
