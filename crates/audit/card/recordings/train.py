"""Trains a small transformer and evaluates it now and then: `train.py [STEPS]`. Each evaluation keeps its output, which nobody reads: it grows."""

import sys

import torch

WIDTH = 512
SEQUENCE = 256
BATCH = 24
WORDS = 16384


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        layer = torch.nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        return self.head(self.layers(self.embedding(tokens)))


def train_step(model, optimizer, tokens):
    optimizer.zero_grad(set_to_none=True)
    output = model(tokens)
    loss = torch.nn.functional.cross_entropy(output.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


def evaluate(model, tokens, kept):
    with torch.no_grad():
        kept.append(model(tokens))


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.manual_seed(0)
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kept = []
    for number in range(steps):
        # Sequences become longer, as with a curriculum.
        length = SEQUENCE * (1 + 2 * number // steps)
        tokens = torch.randint(WORDS, (BATCH, length), device="cuda")
        loss = train_step(model, optimizer, tokens)
        if number % 10 == 9:
            evaluate(model, tokens[:4], kept)
            print(f"step {number + 1}: loss {loss:.3f}, {torch.cuda.memory_allocated() >> 20} MiB", flush=True)


main()
