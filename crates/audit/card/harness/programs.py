"""The list of programs: how each is built and run, and what compute-sanitizer can see of it."""

from dataclasses import dataclass

# What compute-sanitizer's leak check reports of a program.
SAME = "same"        # the same number of blocks and bytes: lost, reachable and destroyed together
SHOWN = "shown"      # printed in the table, not compared; the note says why


@dataclass(frozen=True)
class Program:
    name: str
    source: str
    build: str                    # driver, static, shared, host, python, binary (built already)
    arguments: tuple = ()
    flags: tuple = ()             # further arguments for the compiler
    library: str = ""             # a shared library to build beside it, on the shared runtime
    sanitizer: str = SHOWN
    alone: bool = False           # nothing else may use the GPU meanwhile
    note: str = ""


def ends():
    """One program for each way to end. The sanitizer's leak check needs exit handlers."""
    for end in ["return", "exit"]:
        yield Program(f"end_{end}", "ends.c", "driver", (end,), sanitizer=SAME)
    for end in ["_exit", "quick_exit", "abort", "sigterm", "sigint", "sighup"]:
        yield Program(f"end_{end}", "ends.c", "driver", (end,), note="runs no exit handlers")


PROGRAMS = [
    Program("driver", "driver.c", "driver", sanitizer=SAME),
    Program("driver_by_name", "driver_by_name.c", "driver", sanitizer=SAME, note="dlsym and cuGetProcAddress"),
    Program("contexts", "contexts.c", "driver", sanitizer=SAME, note="destroyed with its context: a leak for the sanitizer"),
    Program("virtual_memory_mapped", "virtual_memory_mapped.c", "driver"),
    Program("virtual_memory_unmapped", "virtual_memory_unmapped.c", "driver", note="not seen by the sanitizer"),
    Program("virtual_memory_released", "virtual_memory_released.c", "driver"),
    Program("virtual_memory_imported", "virtual_memory_imported.c", "driver"),
    Program("handles", "handles.c", "driver", note="streams and events: not seen by the sanitizer"),
    Program("forked", "forked.c", "driver", note="the sanitizer misses the child that calls _exit"),
    Program("executed", "executed.c", "driver", note="one child replaces itself by exec while memory is alive"),
    Program("no_cuda", "no_cuda.c", "driver", note="never calls the driver: no report"),
    *ends(),
    Program("runtime_static", "runtime.cu", "static", sanitizer=SAME),
    Program("runtime_shared", "runtime.cu", "shared", sanitizer=SAME),
    Program("clean", "clean.cu", "static", sanitizer=SAME, note="exit code 7 stays 7"),
    Program("pool", "pool.cu", "static", sanitizer=SAME),
    Program("per_thread_stream", "per_thread_stream.cu", "static", flags=("--default-stream", "per-thread"), sanitizer=SAME),
    Program("managed", "managed.cu", "static"),
    Program("pinned", "pinned.cu", "static"),
    Program("pitched", "pitched.cu", "static"),
    Program("arrays", "arrays.cu", "static"),
    Program("graph_memory", "graph_memory.cu", "static"),
    Program("threads", "threads.cu", "static", sanitizer=SAME),
    Program("exception", "exception.cpp", "static", sanitizer=SAME),
    Program("uncaught", "uncaught.cpp", "static", note="std::terminate"),
    Program("library", "library.c", "host", library="leaky_library.cpp", sanitizer=SAME, note="dlopen of a library that leaks"),
    Program("reachable_global", "reachable_global.cu", "static", sanitizer=SAME),
    Program("reachable_heap", "reachable_heap.cpp", "static", sanitizer=SAME),
    Program("lost_objects", "lost_objects.cpp", "static", sanitizer=SAME, note="indirectly lost, and ways through the heap"),
    Program("reachable_static", "reachable_static.cpp", "static", sanitizer=SAME, note="a destructor runs at exit and frees nothing"),
    Program("reachable_stack", "reachable_stack.cpp", "static", sanitizer=SAME),
    Program("freed_late", "freed_late.cpp", "static", note="freed by a destructor at exit"),
    Program("illegal_address", "illegal_address.cu", "static", note="the sanitizer reports the access and stops the kernel"),
    Program("growth", "growth.cu", "static", sanitizer=SAME),
    Program("cache_unbounded", "cache.cu", "static", ("unbounded",), sanitizer=SAME),
    Program("cache_of_the_newest", "cache.cu", "static", sanitizer=SAME),
    Program("refused", "refused.cu", "static", note="out of memory: explained by cuguard alone"),
    Program("torch_training", "torch_training.py", "python"),
    Program("torch_expandable", "torch_expandable.py", "python"),
    Program("torch_keeps_losses", "torch_keeps_losses.py", "python"),
    Program("torch_keeps_exceptions", "torch_keeps_exceptions.py", "python"),
    Program("torch_loads", "torch_loads.py", "python"),
    Program("torch_workers", "torch_workers.py", "python"),
    Program("cupy_pool", "cupy_pool.py", "python"),
    Program("cupy_teardown", "cupy_teardown.py", "python"),
    Program("cupy_no_pool", "cupy_no_pool.py", "python"),
    Program("cupy_raw", "cupy_raw.py", "python"),
    Program("torch_out_of_memory", "torch_out_of_memory.py", "python", alone=True),
]
