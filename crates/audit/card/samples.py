#!/usr/bin/env python3
"""Runs NVIDIA's public CUDA samples plain and under `cuguard run`, and prints what they leak. Needs a GPU, nvcc and g++, no CMake.

    git clone --depth 1 --branch v13.0 https://github.com/NVIDIA/cuda-samples
    crates/audit/card/samples.py target/release/cuguard cuda-samples

The samples are not part of this repository. Left out are those that need graphics, MPI or a platform other than a PC.
Exit code 1: a sample ended differently under `cuguard run`, or a report has a problem.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from harness import reading
from harness.running import absolute, run

# The folders whose samples are for every platform; 7 is about the compiler, 8 about other platforms.
CHAPTERS = re.compile(r"[0-6]_")
# Packages of CMake that a sample may need and this script does not provide.
OTHER = re.compile(r"find_package\((OpenGL|GLUT|EGL|Vulkan|FreeImage|MPI|NVSCI|X11)|\bd3d1[0-2]\b")
# Of a target for another operating system, or of a library that is not installed with the toolkit.
UNUSED = {"CUDA::cudart"}
LIBRARIES = {"CUDA::cuda_driver": ["-lcuda"], "CUDA::cufft_static": ["-lcufft_static", "-lculibos"], "CUDA::cusolver": ["-lcusolver", "-lcusparse"]}
BUILD_SECONDS = 240
# How many lines of the program are named for each sample.
LINES = 4


@dataclass
class Sample:
    folder: pathlib.Path
    wrong: str = ""                 # why it was not built, or what went wrong
    ended: str = ""                 # how it ended
    lost: Counter = field(default_factory=Counter)
    lost_bytes: int = 0
    lines: Counter = field(default_factory=Counter)
    differs: bool = False

    @property
    def name(self):
        return self.folder.name


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cuguard", help="the cuguard command")
    parser.add_argument("samples", type=pathlib.Path, help="a checkout of the samples")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this sample; can be repeated")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="for one run of one sample")
    parser.add_argument("--jobs", type=int, default=min(6, os.cpu_count() or 1), help="samples at a time")
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"), help="the CUDA toolkit")
    parser.add_argument("--architecture", default="sm_90", help="of the GPU, for nvcc")
    parser.add_argument("--keep", metavar="FOLDER", help="build and run there, and leave everything: NAME.cuguard/stderr is the report")
    options = parser.parse_args()
    options.cuguard = absolute(options.cuguard)
    if not shutil.which(options.cuguard):
        parser.error(f"{options.cuguard} is not an executable file")
    if not (options.samples / "Samples").is_dir():
        parser.error(f"{options.samples} has no folder Samples: it is not a checkout of NVIDIA/cuda-samples from version 12.9 on")
    options.nvcc = shutil.which(f"{options.cuda}/bin/nvcc") or shutil.which("nvcc")
    if not options.nvcc:
        parser.error(f"no nvcc in {options.cuda}/bin or PATH")
    return options


def of_target(text, command):
    """The words of each call of a command of CMake."""
    return [words.split()[1:] for words in re.findall(rf"\b{command}\(([^)]*)\)", text)]


def build_commands(folder, options):
    """The compiler's command lines for a sample in this folder, from what its CMakeLists.txt says."""
    text = re.sub(r"#.*", "", (folder / "CMakeLists.txt").read_text())
    sources = next(iter(of_target(text, "add_executable")), [])
    nvcc = [options.nvcc, f"-arch={options.architecture}", "-std=c++17", "--extended-lambda", "-g", "-lineinfo", "-w",
            f"-I{folder.parent.parent.parent / 'Common'}", f"-I{options.cuda}/include"]
    libraries = []
    for words in of_target(text, "target_link_libraries"):
        for name in filter(lambda word: word.startswith("CUDA::") and word not in UNUSED, words):
            libraries += LIBRARIES.get(name, ["-l" + name[len("CUDA::"):]])
    libraries += ["-l" + name for name in re.findall(r"find_library\(\w+\s+NAMES?\s+(nv\w+)", text)]
    nvcc += [f"-I{folder / 'inc'}"] if (folder / "inc").is_dir() else []
    for file, source in zip(re.findall(r"set\(CUDA_(?:FATBIN|PTX|CUBIN)_FILE \"\$\{CMAKE_CURRENT_BINARY_DIR\}/([^\"]+)\"", text),
                            re.findall(r"set\(CUDA_KERNEL_SOURCE \"\$\{CMAKE_CURRENT_SOURCE_DIR\}/([^\"]+)\"", text)):
        yield [*nvcc, f"-{file.rsplit('.', 1)[1]}", "-o", folder / file, folder / source]
    flags = ["-rdc=true"] if "CUDA_SEPARABLE_COMPILATION ON" in text else []
    flags += ["-Xcompiler", "-fopenmp"] if "find_package(OpenMP" in text else []
    yield [*nvcc, *flags, "-o", folder / folder.name, *(folder / source for source in sources), f"-L{options.cuda}/lib64/stubs", *libraries,
           "-lpthread", "-lrt", "-ldl",
           "-Xlinker", f"-rpath={options.cuda}/lib64"]


def build(sample, options):
    """Builds a sample in its folder, unless an earlier run did in the same folder of --keep. NVRTC finds its headers there."""
    if (sample.folder / sample.name).is_file():
        return
    for header in ["include/cooperative_groups.h", "include/cooperative_groups", "include/cccl/nv", "include/cccl/cuda"]:
        link = sample.folder / pathlib.Path(header).name
        if not link.exists():
            link.symlink_to(pathlib.Path(options.cuda) / header)
    for command in build_commands(sample.folder, options):
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=sample.folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            sample.wrong = str(error)
            return
        if done.returncode != 0:
            sample.wrong = (done.stderr or done.stdout).strip().splitlines()[0][:160]
            return


def place(group):
    """The line of the program that allocated: the innermost of its own files."""
    for frame in group.get("stack") or []:
        if frame.get("class") == "user" and frame.get("file") and frame.get("line"):
            return f"{frame['file'].rsplit('/', 1)[1]}:{frame['line']}"
    return None


def examine(sample, folder, options):
    """Runs a sample plain and under `cuguard run`."""
    command = [sample.folder / sample.name]
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "LEAK_REPORT")}
    plain = run_in(sample, command, environment, folder / f"{sample.name}.plain", options)
    reports = folder / f"{sample.name}.cuguard" / "reports"
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    audited = [options.cuguard, "run", "--output", reports / "%p.json", "--", *command]
    environment["LEAK_REPORT"] = "text,json"
    outcome = run_in(sample, audited, environment, folder / f"{sample.name}.cuguard", options)
    found = reading.figures(reports)
    for group in found.groups:
        if group.get("fate") == "lost":
            sample.lost[group["kind"]] += int(group["count"])
            sample.lost_bytes += int(group["bytes"]) if group["kind"] in reading.MEMORY else 0
            sample.lines[place(group) or "a CUDA library"] += int(group["count"])
    sample.ended = ended(plain)
    sample.wrong = "; ".join(found.problems)
    if ended(outcome) != sample.ended:
        sample.differs = True
        sample.wrong = f"{sample.ended} plain, {ended(outcome)} under cuguard run; {outcome.tail()}"


def run_in(sample, command, environment, folder, options):
    """Runs in the sample's folder, where its data is."""
    return run(["sh", "-c", 'cd "$0" && exec "$@"', sample.folder, *command], environment, folder, options.timeout)


def ended(outcome):
    return "timed out" if outcome.timed_out else f"exit code {outcome.status()}"


def amount(size):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.2f}".rstrip("0").rstrip(".") + f" {unit}"
        size /= 1024


def table(samples):
    lines = ["| sample | lost | allocated at |", "|---|---|---|"]
    for sample in sorted(samples, key=lambda sample: (-sample.lost_bytes, sample.name)):
        lost = ", ".join(f"{count} {kind.replace('_', '-')}" for kind, count in sorted(sample.lost.items()))
        lost += f" ({amount(sample.lost_bytes)})" if sample.lost_bytes else ""
        places = sorted(sample.lines)
        shown = ", ".join(places[:LINES]) + (f" and {len(places) - LINES} more" if len(places) > LINES else "")
        lines.append(f"| {sample.name} | {lost} | {shown} |")
    return "\n".join(lines)


def copied(options, folder):
    """The samples in a copy of the checkout, and how many were left out."""
    tree = folder / "samples"
    if not tree.exists():
        shutil.copytree(options.samples, tree, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    found = [path.parent for path in sorted(tree.glob("Samples/*/*/CMakeLists.txt")) if CHAPTERS.match(path.parent.parent.name)]
    if options.only:
        unknown = set(options.only) - {path.name for path in found}
        if unknown:
            sys.exit(f"samples.py: no sample is named {sorted(unknown)[0]}")
        found = [path for path in found if path.name in options.only]
    needed = [path for path in found if not OTHER.search((path / "CMakeLists.txt").read_text())]
    return [Sample(path) for path in needed], len(found) - len(needed)


def main():
    options = arguments()
    folder = pathlib.Path(options.keep or tempfile.mkdtemp(prefix="cuguard-samples-")).resolve()
    began = time.monotonic()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        samples, left_out = copied(options, folder)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(lambda sample: build(sample, options), samples))
        built = [sample for sample in samples if not sample.wrong]
        seconds = time.monotonic() - began
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda sample: examine(sample, folder, options), built))
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    leaky = [sample for sample in built if sample.lost]
    print(table(leaky))
    for sample in samples:
        if sample.wrong:
            print(f"\n{sample.name}: {'' if sample in built else 'not built: '}{sample.wrong}")
    endings = Counter(sample.ended for sample in built)
    print(f"\n{len(samples)} samples without graphics ({left_out} left out): {len(built)} built in {seconds:.0f} s; "
          f"plain: {', '.join(f'{count} {ending}' for ending, count in endings.most_common())}; "
          f"{sum(sample.differs for sample in built)} ended differently under cuguard run; {len(leaky)} leak; "
          f"{time.monotonic() - began:.0f} s in all")
    return 1 if any(sample.wrong for sample in built) else 0


if __name__ == "__main__":
    sys.exit(main())
