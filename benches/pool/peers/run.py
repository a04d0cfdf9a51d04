#!/usr/bin/env python3
"""Builds the peers of the benchmark `pool`, runs them and cuguard's own program in turn, and prints a table.

    python3 run.py --rmm FOLDER --ours PATH --out FOLDER [--budget 420] [--works pair,churn,threads,fill,free,trace,check]
                   [--trace FILE] [--record] [--test] [--peers driver,rmm,torch]

    --rmm FOLDER   the unpacked wheels: FOLDER/librmm/{include,lib64}, FOLDER/rapids_logger/{include,lib64}
    --ours PATH    the benchmark built by cargo (`bundle/benches/pool`); without it, peers alone
    --record       records the trace first (record_trace.py), into the folder of --out
    --from FILE    runs nothing: the table of the lines of JSON in a file, `-` for standard input
    --budget S     seconds in all; what has no time left is not run, and printed as such

Needs g++, a CUDA toolkit (headers and the stub of libcuda) and, for its allocator, PyTorch in the Python that runs this.
Works go one after the other, and within a work all programs, so that a slow state of the machine meets all of them.
Writes figures.jsonl, table.md and the logs to the folder of --out.
"""

import argparse
import gzip
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
WORKS = ["pair", "churn", "threads", "free", "trace", "fill", "check"]


class Budget:
    def __init__(self, seconds):
        self.end = time.monotonic() + seconds

    def left(self):
        return max(0.0, self.end - time.monotonic())


def toolkit():
    """The folder with include/cuda.h."""
    for folder in [os.environ.get("CUDA_HOME"), "/usr/local/cuda", *map(str, sorted(pathlib.Path("/usr/local").glob("cuda-*"), reverse=True))]:
        if folder and os.path.exists(f"{folder}/include/cuda.h"):
            return pathlib.Path(folder)
    nvcc = shutil.which("nvcc")
    if nvcc and (pathlib.Path(nvcc).resolve().parent.parent / "include/cuda.h").exists():
        return pathlib.Path(nvcc).resolve().parent.parent
    sys.exit("run.py: no CUDA toolkit found; set CUDA_HOME")


def library_folders(cuda):
    """Folders of the toolkit that may have the stub of libcuda and the runtime."""
    named = [cuda / "lib64/stubs", cuda / "targets/x86_64-linux/lib/stubs", cuda / "lib64", cuda / "targets/x86_64-linux/lib"]
    return [folder for folder in named if folder.is_dir()]


def libcuda(cuda):
    """What to pass to the linker for libcuda."""
    for folder in library_folders(cuda):
        if (folder / "libcuda.so").exists():
            return [f"-L{folder}", "-lcuda"]
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    for line in listed.splitlines():
        if "libcuda.so.1 " in line:
            return [line.split("=>")[1].strip()]
    found = list(pathlib.Path("/usr/local/nvidia").glob("**/libcuda.so.1"))
    return [str(found[0])] if found else ["-l:libcuda.so.1"]


def cudart(cuda, torch_folder):
    """The runtime as a shared library, one that is found at run time too."""
    folders = library_folders(cuda)
    if torch_folder:
        folders = list(torch_folder.parent.glob("nvidia/*/lib")) + folders
    for folder in folders:
        found = sorted(folder.glob("libcudart.so.1[0-9]"))
        if found:
            return [str(found[-1]), f"-Wl,-rpath,{folder}"]
    return ["-lcudart"]


def torch_package():
    """PyTorch's folder, in this Python or another."""
    for python in [sys.executable, "/opt/torch/.venv/bin/python3", "python3"]:
        try:
            done = subprocess.run([python, "-c", "import torch; print(torch.__path__[0])"], capture_output=True, text=True, timeout=120)
        except OSError:
            continue
        if done.returncode == 0:
            return pathlib.Path(done.stdout.strip()), python
    return None, sys.executable


def build(options, out):
    """Builds what can be built, all at once; returns {peer: program}."""
    cuda = toolkit()
    torch_folder, options.python = torch_package()
    base = ["g++", "-std=c++20", "-O2", "-pthread", str(HERE / "peers.cpp")]
    headers = ["-isystem", str(cuda / "include")]
    driver = libcuda(cuda)
    commands = {"driver": base + ["-DPEER_DRIVER", *headers, *driver]}
    if options.rmm:
        rmm, logger = options.rmm / "librmm", options.rmm / "rapids_logger"
        commands["rmm"] = (
            base
            + ["-DPEER_RMM", "-isystem", f"{rmm}/include/rapids", "-isystem", f"{rmm}/include", "-isystem", f"{logger}/include", *headers]
            + [f"-L{rmm}/lib64", f"-L{logger}/lib64", f"-Wl,-rpath,{rmm}/lib64:{logger}/lib64", "-lrmm", "-lrapids_logger"]
            + driver
            + cudart(cuda, torch_folder)
        )
    if torch_folder:
        commands["torch"] = (
            base
            + ["-DPEER_TORCH", "-isystem", f"{torch_folder}/include", *headers]
            + [f"-L{torch_folder}/lib", f"-Wl,-rpath,{torch_folder}/lib", "-lc10_cuda", "-lc10"]
            + driver
            + cudart(cuda, torch_folder)
        )
    running = {}
    for peer, command in commands.items():
        if peer not in options.peers:
            continue
        program = out / f"peers-{peer}"
        log = open(out / f"build-{peer}.log", "w")
        print("+", shlex.join(command), file=log, flush=True)
        running[peer] = (program, subprocess.Popen(command + ["-o", str(program)], stdout=log, stderr=log))
    built = {}
    for peer, (program, process) in running.items():
        if process.wait() == 0:
            built[peer] = program
        else:
            print(f"{peer}: not built:\n{(out / f'build-{peer}.log').read_text()[-3000:]}", flush=True)
    return built


def programs(options, built):
    """(label, command, environment) of each program; one a label, so that each has the device to itself."""
    common = ["--kernels", str(ROOT / "kernels")]
    if options.brief:
        common += ["--test"]
    if options.fill_gib:
        common += ["--fill-gib", str(options.fill_gib)]
    rows = []
    if options.ours:
        own = ["--bench"] + (["--test"] if options.brief else []) + (["--fill-gib", str(options.fill_gib)] if options.fill_gib else [])
        # One section a process; the driver is the real one, or none.
        rows.append(("cuguard", [str(options.ours), *own], {"CUGUARD_DRIVER": os.environ.get("CUGUARD_DRIVER", "real")}))
    if "driver" in built:
        for name in ["driver pool", "cuMemAlloc"]:
            rows.append((name, [str(built["driver"]), "--allocators", name, *common], {}))
    if "rmm" in built:
        for name in ["rmm pool", "rmm arena", "rmm async"]:
            rows.append((name, [str(built["rmm"]), "--allocators", name, *common], {}))
    if "torch" in built:
        rows.append(("torch", [str(built["torch"]), *common], {"PYTORCH_CUDA_ALLOC_CONF": ""}))
        rows.append(("torch expandable", [str(built["torch"]), *common], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}))
    return rows


def quiet_processor():
    """The processor on which a loop takes the least time. On the others something else may run on the same core, which makes
    all that is measured here slower by half and more."""
    allowed = os.sched_getaffinity(0)

    def time_on(processor):
        os.sched_setaffinity(0, {processor})
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(100_000):
                pass
            times.append(time.perf_counter() - begin)
        return sorted(times)[len(times) // 2]

    try:
        return min(sorted(allowed), key=time_on)
    finally:
        os.sched_setaffinity(0, allowed)


def wanted(label, work):
    if work == "check":
        return label == "cuguard"
    # 60 GiB in blocks of 64 KiB would take a minute, and the trace as long.
    if label == "cuMemAlloc":
        return work in ("pair", "free")
    return True


def run(label, command, environment, seconds, out, figures, work, processors):
    """Runs one program on some of the processors and collects the lines of JSON that it prints."""
    name = f"{label}-{work}".replace(" ", "-")
    begin = time.monotonic()
    with open(out / f"{name}.log", "w+") as log:
        print("+", shlex.join(command), file=log, flush=True)
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment, cwd=out,
                                   preexec_fn=lambda: os.sched_setaffinity(0, processors))
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "time is over"
        log.seek(0)
        text = log.read()
    found = 0
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                figures.append(json.loads(line))
                found += 1
            except ValueError:
                print(f"{name}: not JSON: {line[:200]}", flush=True)
    print(f"{work:8} {label:18} {time.monotonic() - begin:6.1f} s, {found} figures" + (f", exit {code}" if code else ""), flush=True)
    if code:
        figures.append({"work": work, "case": "", "allocator": label, "note": f"exit {code}"})
        print("\n".join(text.splitlines()[-8:]), flush=True)
    (out / "figures.jsonl").write_text("".join(json.dumps(figure) + "\n" for figure in figures))


def text(value):
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(figures, all_figures=True):
    """Markdown: a row for each work, case and figure, a column for each allocator."""
    columns, rows, noted = [], {}, {}
    for figure in figures:
        if "note" in figure:
            noted.setdefault((figure["allocator"], figure["work"], figure["note"]), []).append(figure["case"])
            continue
        if figure["allocator"] not in columns:
            columns.append(figure["allocator"])
        key = (figure["work"], figure["case"], figure["figure"])
        rows.setdefault(key, {})[figure["allocator"]] = figure["value"]

    def cells(key):
        if all_figures or key[2] != "had 95 %":
            return [text(rows[key].get(column)) for column in columns]
        # Had, and in what time; or what part could be had.
        times, shares = (rows.get((*key[:2], name), {}) for name in ("large ms", "share of freed"))
        had = {1: lambda c: f"{text(times.get(c))} ms", 0: lambda c: f"no ({shares.get(c, 0):.0%})"}
        return [had[rows[key][c]](c) if c in rows[key] else "" for c in columns]

    out = ["| work | case | figure | " + " | ".join(columns) + " |", "|---|---|---|" + "---|" * len(columns)]
    for key in rows:
        if all_figures or key[0] != "fill" or key[2] == "had 95 %":
            out.append(f"| {' | '.join(key)} | " + " | ".join(cells(key)) + " |")
    notes = [
        f"- {allocator}, {work}" + (f" ({len(cases)} cases)" if len(cases) > 1 else f" {cases[0]}") + f": {note}"
        for (allocator, work, note), cases in noted.items()
    ]
    return "\n".join(out + ["", *notes])


def trace_file(options, out):
    """The trace as plain text, for the programs."""
    source = options.trace
    if options.record:
        source = out / "trace.txt.gz"
        done = subprocess.run([options.python, str(HERE / "record_trace.py"), str(source)] + options.record_options.split())
        if done.returncode:
            print("the trace could not be recorded", flush=True)
            source = options.trace
    if not source or not source.exists():
        return None
    plain = options.scratch / "trace.txt"
    plain.write_bytes(gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes())
    return plain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rmm", type=pathlib.Path)
    parser.add_argument("--ours", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--from", dest="source")
    parser.add_argument("--budget", type=float, default=420)
    parser.add_argument("--works", default=",".join(WORKS))
    parser.add_argument("--peers", default="driver,rmm,torch")
    parser.add_argument("--trace", type=pathlib.Path, default=HERE.parent / "trace.txt.gz")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--record-options", default="")
    parser.add_argument("--fill-gib", type=int)
    parser.add_argument("--test", dest="brief", action="store_true")
    options = parser.parse_args()
    if options.source:
        text = sys.stdin.read() if options.source == "-" else pathlib.Path(options.source).read_text()
        print(table([json.loads(line) for line in text.splitlines() if line.startswith("{")], all_figures=False))
        return
    if not options.out:
        parser.error("the folder --out is missing")
    options.rmm = options.rmm and options.rmm.resolve()
    options.ours = options.ours and options.ours.resolve()
    options.peers = options.peers.split(",")
    works = options.works.split(",")
    for work in works:
        if work not in WORKS:
            sys.exit(f"run.py: there is no work {work!r}; there are {', '.join(WORKS)}")
    budget = Budget(options.budget)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Programs and logs; only the results go to --out.
    options.scratch = pathlib.Path(os.environ.get("TMPDIR", "/tmp")) / f"pool-bench-{os.getpid()}"
    options.scratch.mkdir(parents=True, exist_ok=True)
    built = build(options, options.scratch)
    print(f"built: {', '.join(built) or 'nothing'}; {budget.left():.0f} s left", flush=True)
    plain = trace_file(options, out)
    figures = []
    rows = programs(options, built)
    fills = [(label, work) for work in works for label, *_ in rows if work == "fill" and wanted(label, work)]
    for work in works:
        # Works of one thread, all on the same processor.
        processors = {quiet_processor()} if work in ("pair", "churn") else os.sched_getaffinity(0)
        # The time that the others leave of their shares of `fill` is cuguard's, which merges pages for its blocks.
        in_order = sorted(rows, key=lambda row: row[0] == "cuguard") if work == "fill" else rows
        for label, command, environment in in_order:
            if not wanted(label, work):
                continue
            left = budget.left()
            if left < 5:
                figures.append({"work": work, "case": "", "allocator": label, "note": "not run: no time left"})
                continue
            section = [work] if label == "cuguard" else ["--works", work]
            if work == "trace":
                if not plain:
                    figures.append({"work": work, "case": "", "allocator": label, "note": "not run: no trace"})
                    continue
                section += ["--trace", str(plain)]
            limit = left
            if work == "fill":
                # What is left goes to all programs alike, and the check has a part of it.
                share = (left - (120 if "check" in works else 0)) / max(1, len(fills))
                fills.pop(0)
                section += ["--seconds", f"{max(1.0, share * 0.8):.0f}"]
                limit = min(left, share * 2 + 20)
            if work == "check":
                section += ["--seconds", f"{max(1.0, left * 0.8 - 5):.0f}"]
            run(label, command + section, environment, min(limit, 200), options.scratch, figures, work, processors)
    for name in ["figures.jsonl"]:
        if (options.scratch / name).exists():
            shutil.copy(options.scratch / name, out / name)
    logs = "\n".join(f"==> {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in sorted(options.scratch.glob("*.log")))
    (out / "logs.txt").write_text(logs)
    (out / "table.md").write_text(table(figures) + "\n")
    shutil.rmtree(options.scratch, ignore_errors=True)
    print(table(figures, all_figures=False))
    print(f"{options.budget - budget.left():.0f} s in all")


if __name__ == "__main__":
    main()
