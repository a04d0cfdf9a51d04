"""Requests to the audit library of this process, by its socket."""

import json
import os
import struct

# Not `socket`: plugins that keep tests off the network replace what is in it.
from _socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

#: How long a reply may take. A report of a large program resolves many names.
_PATIENCE = 120.0

#: How many libraries of a process can have a socket.
_SERVERS = 8

#: The audit library reads it at the first call of the driver; tests may change it later, or earlier.
_RUNTIME = os.environ.get("XDG_RUNTIME_DIR", "")


class NotAudited(RuntimeError):
    """This process does not run under ``cuguard run``."""

    def __init__(self):
        super().__init__(
            "this process does not run under `cuguard run`; start it with"
            " `cuguard run -- python3 ...`, or pytest with `--cuguard`"
        )


def is_audited():
    """Whether this process runs under ``cuguard run``.

    >>> cuguard.is_audited()
    True
    """
    try:
        with open("/proc/self/maps", "rb") as maps:
            return any(b"libcuguard_audit" in line for line in maps)
    except OSError:
        return "libcuguard_audit" in os.environ.get("LD_PRELOAD", "")


def _sockets():
    runtimes = dict.fromkeys([_RUNTIME, os.environ.get("XDG_RUNTIME_DIR", "")])
    folders = [os.path.join(runtime, "cuguard") for runtime in runtimes if os.path.isabs(runtime)]
    folders.append("/tmp/cuguard-%d" % os.geteuid())
    for folder in folders:
        for server in range(_SERVERS):
            suffix = "" if server == 0 else "-%d" % (server + 1)
            path = os.path.join(folder, "%d%s.sock" % (os.getpid(), suffix))
            if os.path.exists(path):
                yield path


def _exchange(path, request):
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(_PATIENCE)
        connection.connect(path)
        # Of another user, or left over from a process with the same number whose name another one took.
        process = struct.unpack("3i", connection.getsockopt(SOL_SOCKET, SO_PEERCRED, 12))[0]
        if process != os.getpid():
            raise ConnectionRefusedError("%s is a socket of process %d" % (path, process))
        connection.sendall(request.encode() + b"\n")
        reply = bytearray()
        while True:
            part = connection.recv(1 << 16)
            if not part:
                break
            reply += part
    finally:
        connection.close()
    status, _, body = bytes(reply).decode("utf-8", "replace").partition("\n")
    if status != "ok":
        raise RuntimeError("%s: %s" % (request, status[len("error ") :] or "no reply"))
    return body


class _Connection:
    """The socket of the audit library; another library in the process, such as the crate, may have one too."""

    def __init__(self):
        self.process = None
        self.path = None

    def ask(self, request):
        """The reply, or ``None`` where this process has not used CUDA yet."""
        if self.process != os.getpid():
            # A forked child has no socket until it uses CUDA itself.
            self.process, self.path = os.getpid(), None
        if self.path is None:
            self.path = self._find()
        if self.path is None:
            return None
        return _exchange(self.path, request)

    def _find(self):
        if not is_audited():
            raise NotAudited
        for path in _sockets():
            try:
                figures = json.loads(_exchange(path, "stats 0"))
            except (OSError, ValueError, RuntimeError):
                # Left over from a process with the same number.
                continue
            if figures["tool"] == "cuguard-audit" and figures["process"] == os.getpid():
                return path
        return None


_CONNECTION = _Connection()


def ask(request):
    """The reply to a request, or ``None`` where this process has not used CUDA yet."""
    return _CONNECTION.ask(request)


def ask_json(request):
    """The same, parsed."""
    reply = ask(request)
    return None if reply is None else json.loads(reply)
