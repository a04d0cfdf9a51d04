#!/usr/bin/env python3
"""Records real programs on a machine with a GPU:

    crates/audit/card/recordings/record.py target/release/cuguard recordings/
    cuguard report recordings/train.cgr --html train.html
    cuguard report recordings/rank-*.cgr

Needs nvcc and PyTorch. Writes FOLDER/{train,train-no-cache,fragmentation,rank-0,rank-1}.cgr with names of functions in them.
What a recording costs is measured by `bench/bench.py --record`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cuguard", type=pathlib.Path, help="the cuguard command")
    parser.add_argument("folder", type=pathlib.Path, help="where the recordings are written")
    parser.add_argument("--only", action="append", choices=["train", "fragmentation", "ranks"], help="can be repeated; all without it")
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc")
    return parser.parse_args()


def wanted(options, name):
    return options.only is None or name in options.only


def run(command, **variables):
    """Runs a command, prints its output where it fails, and returns its seconds and its output."""
    began = time.monotonic()
    environment = {**os.environ, **variables}
    done = subprocess.run([str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        print(f"exit code {done.returncode}: {' '.join(str(word) for word in command)}\n{done.stdout[-3000:]}", file=sys.stderr)
        sys.exit(1)
    return time.monotonic() - began, done.stdout


def record(options, name, command, **variables):
    """Records a program and prints the file's size, the seconds and the first lines of its report at the peak."""
    file = options.folder / f"{name}.cgr"
    seconds, output = run([options.cuguard, "run", "--record", file, "--embed-symbols", "--", *command], **variables)
    print(f"\n## {name}: {seconds:.1f} s\n{output.strip()}", flush=True)
    for written in sorted(options.folder.glob(name.replace("%r", "?") + ".cgr*")):
        _, report = run([options.cuguard, "report", written, "--top", "5"])
        print(f"\n### {written.name}: {written.stat().st_size} bytes\n{report.strip()}", flush=True)


def main():
    options = arguments()
    options.cuguard = options.cuguard.resolve()
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cuguard-record-") as name:
        folder = pathlib.Path(name)
        if wanted(options, "train"):
            train = [sys.executable, HERE / "train.py"]
            record(options, "train", train)
            record(options, "train-no-cache", [*train, "20"], PYTORCH_NO_CUDA_MEMORY_CACHING="1")
        if wanted(options, "fragmentation"):
            source = HERE / "fragmentation.cu"
            run([options.nvcc, "-std=c++20", "-O1", "-g", "-arch=sm_90", "-o", folder / source.stem, source])
            record(options, "fragmentation", [folder / "fragmentation"])
        if wanted(options, "ranks"):
            record(options, "rank-%r", [*TORCHRUN, HERE / "ranks.py"])


main()
