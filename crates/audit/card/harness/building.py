"""Compiles the programs in parallel: gcc for the driver API, nvcc for the runtime."""

import pathlib
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

CARD = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 120


class Toolkit:
    """Where the CUDA toolkit and the driver's library are."""

    def __init__(self, cuda, libcuda, architecture):
        self.root = pathlib.Path(cuda)
        self.architecture = architecture
        self.libraries = next((self.root / name for name in ("lib64", "lib") if (self.root / name).is_dir()), self.root)
        stubs = self.libraries / "stubs"
        self.libcuda = pathlib.Path(libcuda) if libcuda else stubs
        nvcc = self.root / "bin/nvcc"
        self.nvcc = str(nvcc) if nvcc.exists() else shutil.which("nvcc")

    def driver_library(self):
        """Arguments for the linker. A folder with a driver's library has no libcuda.so of its own in most cases."""
        if (self.libcuda / "libcuda.so").exists():
            return [f"-L{self.libcuda}", "-lcuda"]
        if (self.libcuda / "libcuda.so.1").exists():
            return [str(self.libcuda / "libcuda.so.1")]
        return ["-l:libcuda.so.1"]


def commands(program, toolkit, folder):
    """The compiler's command lines for a program."""
    source = CARD / "programs" / program.source
    output = folder / program.name
    include = f"-I{toolkit.root}/include"
    common = ["-g", "-O1", *program.flags]
    if program.build in ("python", "binary"):
        return []
    if program.build == "driver":
        return [["gcc", "-std=gnu11", *common, include, "-o", output, source, *toolkit.driver_library(), "-ldl", "-lpthread"]]
    nvcc = [toolkit.nvcc, f"-arch={toolkit.architecture}", *common, "-L", toolkit.libraries]
    rpath = ["-Xlinker", f"-rpath={toolkit.libraries}", "-Xlinker", "-rpath=$ORIGIN"]
    if program.build == "host":
        library = folder / f"lib{pathlib.Path(program.library).stem}.so"
        return [
            [*nvcc, "-cudart", "shared", "-Xcompiler", "-fPIC", "-shared", *rpath, "-o", library, CARD / "programs" / program.library],
            ["gcc", "-std=gnu11", *common, "-Wl,-rpath=$ORIGIN", "-o", output, source, "-ldl"],
        ]
    return [[*nvcc, "-cudart", program.build, *(rpath if program.build == "shared" else []), "-o", output, source]]


def build(program, toolkit, folder):
    """None, or why the program could not be built."""
    for command in commands(program, toolkit, folder):
        if command[0] is None:
            return "no nvcc"
        try:
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode != 0:
            return (done.stderr or done.stdout).strip()[-1500:]
    return None


def build_all(programs, toolkit, folder, jobs):
    """Builds each, and returns the errors by name."""
    with ThreadPoolExecutor(jobs) as pool:
        errors = pool.map(lambda program: build(program, toolkit, folder), programs)
    return {program.name: error for program, error in zip(programs, errors) if error}
