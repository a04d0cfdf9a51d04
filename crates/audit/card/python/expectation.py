"""What the Python programs share: the line that says what the report must contain, and addresses that are certainly lost."""

import json
import os
import sys


def expected(lost=(0, 0), reachable=None, **more):
    """Prints the expectation. `reachable` is (count, bytes), or {"at_least": bytes} where a library allocates on its own account."""
    expectation = {"lost": dict(zip(("count", "bytes"), lost)), **more}
    if reachable is not None:
        expectation["reachable"] = reachable if isinstance(reachable, dict) else dict(zip(("count", "bytes"), reachable))
    print(json.dumps(expectation), flush=True)


def clobber():
    """Overwrites freed integers of CPython's allocator and the dead part of the C stack, where an address may still stand."""
    integers = [(1 << 61) + number for number in range(200_000)]
    nested = []
    for _ in range(400):
        nested = [nested]
    repr(nested)
    del integers


def end_at_once():
    """Ends without the interpreter's teardown, which would free what the program still holds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def failed(reason):
    """The program could not do what its report is compared for: exit code 99 is never a finding."""
    print(reason, file=sys.stderr)
    sys.exit(99)
