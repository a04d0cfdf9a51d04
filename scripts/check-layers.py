#!/usr/bin/env python3
"""Checks that the layers hold: a lower layer does not import a higher one.

    scripts/check-layers.py [FOLDER]       checks a repository; this one by default
    scripts/check-layers.py --self-test    checks that each rule fails where it should

Rules:
  crates    a crate's [dependencies] are of a lower layer (CRATES), and CUDA-free crates stay so (NO_CUDA)
  modules   a module of src/ imports only modules of a lower layer (MODULES)
  cycles    no import cycle between the top-level modules of a crate, between folders, nor between files
  raw       src/ does not use cuguard_driver::api; it calls cuguard_driver::result
  unsafe    `unsafe` in src/ only in the modules that UNSAFE names

Comments, documentation, strings and what is compiled for tests alone (`#[cfg(test)]`) do not count. A re-export
(`pub use`) is followed to the module that defines the name, and is not an import itself.
Exit code 1: a rule is broken; 3: this Python is older than 3.11.
"""

import re
import sys
import tempfile
from bisect import bisect_left
from pathlib import Path

try:
    import tomllib
except ImportError:
    print("scripts/check-layers.py: needs Python 3.11 or newer", file=sys.stderr)
    sys.exit(3)

# From the bottom up. Crates on one line do not use each other.
CRATES = [
    ["cuguard-sys", "cuguard-sync", "cuguard-nvrtc", "cuguard-ptx", "cuguard-testing"],
    ["cuguard-sim", "cuguard-stack", "cuguard-nvml"],
    ["cuguard-driver", "cuguard-libcuda-sim", "cuguard-recording", "cuguard-kernels"],
    ["cuguard-registry", "cuguard-pool"],
    ["cuguard-report"],
    ["cuguard-view", "cuguard-live"],
    ["cuguard", "cuguard-audit"],
    ["cuguard-cli", "cuguard-torture", "cuguard-foreign"],
]
# These know no CUDA types.
NO_CUDA = {"cuguard-sync", "cuguard-stack", "cuguard-ptx", "cuguard-registry", "cuguard-pool", "cuguard-report", "cuguard-recording", "cuguard-view", "cuguard-live"}
CUDA = {"cuguard-sys", "cuguard-sim", "cuguard-driver", "cuguard-libcuda-sim", "cuguard-kernels"}
# The modules of src/, from the bottom up.
MODULES = ["error", "core", "exit", "live", "recovery", "guards", "cust_interop", "scope", "chunked", "lib", "test", "guide"]
UNSAFE = {"core", "exit", "recovery", "guards", "cust_interop", "scope"}

LITERALS = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | \b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes)
      | (?:\b[bc])?"(?:\\.|[^"\\])*"
      | (?:\bb)?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])'""",
    re.VERBOSE | re.DOTALL,
)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|\S")
DEFINITION = re.compile(
    r"\b(?:const\s+(?!(?:fn|unsafe|extern|async)\b)|(?:fn|struct|enum|trait|type|static|union|mod|macro_rules!)\s+)(\w+)"
)
MACRO = re.compile(r"macro_rules!\s+(\w+)")
FOR_TESTS = re.compile(r"#\s*\[\s*cfg\s*\(\s*(?:all\s*\(\s*)?(?:doc|doctest|test)\b[^\]]*\]")


def blank(text):
    """Spaces of the same shape, so that positions and line numbers stay."""
    return re.sub(r"[^\n]", " ", text)


def strip(text):
    """The code without comments and literals. Block comments that nest end too early; there are none."""
    return LITERALS.sub(lambda match: blank(match[0]), text)


def without_tests(code):
    """The code without items under `#[cfg(test)]`, and the names of modules among them that are files."""
    names = set()
    while match := FOR_TESTS.search(code):
        end = item_end(code, match.end())
        if name := re.search(r"\bmod\s+(\w+)\s*;", code[match.end() : end]):
            names.add(name[1])
        code = code[: match.start()] + blank(code[match.start() : end]) + code[end:]
    return code, names


def item_end(code, start):
    """Where the item ends: behind its semicolon, or behind the brace that closes its first block."""
    depth, is_use = 0, re.match(r"\s*(?:pub\s*(?:\([^)]*\))?\s*)?use\b", code[start:])
    for at in range(start, len(code)):
        if code[at] in "{([":
            depth += 1
        elif code[at] in "})]":
            depth -= 1
            if depth == 0 and code[at] == "}" and not is_use:
                return at + 1
        elif code[at] == ";" and depth == 0:
            return at + 1
    return len(code)


class Module:
    """A source file: the paths that it imports, and the names that it re-exports."""

    def __init__(self, path, name):
        self.path, self.name = path, name  # name: ("guards", "memory"); () for the root
        self.code, self.test_modules = without_tests(strip(path.read_text(encoding="utf-8")))
        self.defines, self.macros = set(DEFINITION.findall(self.code)), set(MACRO.findall(self.code))
        # The relative paths of a macro begin where it is used.
        for macro in MACRO.finditer(self.code):
            end = item_end(self.code, macro.start())
            body = re.sub(r"\b(?:super|self)\s*::", lambda path: blank(path[0]), self.code[macro.start() : end])
            self.code = self.code[: macro.start()] + body + self.code[end:]
        self.paths, self.reexports, self.globs = [], {}, []
        ends = [m.start() for m in re.finditer("\n", self.code)]
        self.tokens = [(m[0], bisect_left(ends, m.start()) + 1) for m in TOKEN.finditer(self.code)]

    def read_paths(self, modules):
        """Fills `paths` with (absolute path, line), and `reexports` and `globs` with absolute paths."""
        at, inline, depth, public = 0, [], 0, False
        words = [word for word, _ in self.tokens]
        while at < len(words):
            word, line = self.tokens[at]
            here = self.name + tuple(name for name, _ in inline)
            if word == "mod" and words[at + 2 : at + 3] == ["{"]:
                inline.append((words[at + 1], depth))
                at += 1
            elif word == "{":
                depth += 1
            elif word == "}":
                depth -= 1
                if inline and inline[-1][1] == depth:
                    inline.pop()
            elif word == "use":
                found, at = self.use_tree(at + 1, [])
                for path, alias in found:
                    absolute = self.absolute(path, here, modules)
                    if absolute is None:
                        continue
                    if public and not inline:
                        self.globs.append(absolute[:-1]) if path[-1] == "*" else self.reexports.update({alias: absolute})
                    elif not public:
                        self.paths.append((absolute, line))
            elif word not in ("::",) and words[at + 1 : at + 2] == ["::"] and words[at - 1 : at] != ["::"]:
                path = [word]
                while words[at + 1 : at + 2] == ["::"] and re.match(r"\w", words[at + 2]):
                    path.append(words[at + 2])
                    at += 2
                absolute = self.absolute(path, here, modules)
                if absolute is not None:
                    self.paths.append((absolute, line))
            if word == "pub":
                public = True
            elif word not in ("(", ")", "crate", "super", "in"):
                public = False
            at += 1

    def use_tree(self, at, prefix):
        """The paths of a use tree that begins at `at`, as (path, name in scope), and where it ends."""
        found, path = [], list(prefix)
        alias = None
        while at < len(self.tokens):
            word = self.tokens[at][0]
            if word == "{":
                while self.tokens[at][0] != "}":
                    inner, at = self.use_tree(at + 1, path)
                    found += inner
                return found, at + 1
            if word == "as":
                alias = self.tokens[at + 1][0]
                at += 1
            elif word in (",", ";", "}"):
                break
            elif word != "::":
                path.append(word)
            at += 1
        if path != prefix:
            if path[-1] == "self":
                path.pop()
            found.append((path, alias or path[-1]))
        return found, at

    def absolute(self, path, here, modules):
        """The path from the crate's root, or None for a path into another crate."""
        path = tuple(path)
        if path[0] == "crate":
            return path[1:]
        if path[0] in ("super", "self"):
            while path and path[0] in ("super", "self"):
                here = here[:-1] if path[0] == "super" else here
                path = path[1:]
            return here + path
        return here + path if here + path[:1] in modules else None


def read_crate(root):
    """The modules of a crate, by name; those for tests alone left out."""
    modules, files = {}, sorted(root.rglob("*.rs"))
    for path in files:
        name = path.relative_to(root).with_suffix("").parts
        if name[-1] == "mod" or (len(name) == 1 and name[0] in ("lib", "main")):
            name = name[:-1]
        if name or () not in modules:
            modules[name] = Module(path, name)
    for_tests = {name + (child,) for name, module in modules.items() for child in module.test_modules}
    modules = {
        name: module
        for name, module in modules.items()
        if not any(name[: len(part)] == part for part in for_tests)
    }
    for module in modules.values():
        module.read_paths(modules)
    return modules


def resolve(path, modules, seen=()):
    """The module that defines what the path names."""
    for length in range(len(path), -1, -1):
        name = path[:length]
        if name not in modules:
            continue
        module, rest = modules[name], path[length:]
        if rest and rest[0] != "*" and (name, rest[0]) not in seen:
            seen = (*seen, (name, rest[0]))
            if rest[0] in module.reexports:
                return resolve(module.reexports[rest[0]] + rest[1:], modules, seen)
            # What the module defines itself comes before what it has by a glob.
            for target in module.globs if rest[0] not in module.defines else []:
                found = resolve(target + rest, modules, seen)
                if rest[0] in modules[found].defines:
                    return found
            if not name:
                return next((other for other, m in modules.items() if rest[0] in m.macros), name)
        return name
    return ()


def imports(modules):
    """All (importing module, imported module, line)."""
    for name, module in modules.items():
        for path, line in module.paths:
            target = resolve(path, modules)
            if target != name:
                yield name, target, line


def cycles(edges):
    """The strongly connected components with more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, {}):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    for node in list(edges):
        if node not in index:
            visit(node)
    return [sorted(component) for component in found if len(component) > 1]


def check_cycles(root, modules, problems):
    """No cycle between a crate's top-level modules, between a folder and its neighbours in a folder, nor between files."""
    edges = {}
    for source, target, line in imports(modules):
        edges.setdefault(source, {}).setdefault(target, line)
    for component in cycles(edges):
        files = ", ".join(str(modules[name].path) for name in component)
        problems.append(f"cycles: {root}: import cycle of {files}")
        for source in component:
            for target, line in edges[source].items():
                if target in component:
                    problems.append(f"    {modules[source].path}:{line} -> {modules[target].path}")
    folders = {name for name, module in modules.items() if module.path.name == "mod.rs"}
    folders |= {name[:length] for name in modules for length in range(len(name))}
    for outer in sorted(folders):
        inner = {name[-1] for name in folders if name and name[:-1] == outer}

        def node(name):
            return name[len(outer)] if len(name) > len(outer) else "mod.rs" if outer else "lib.rs"

        edges = {}
        for source, target, line in imports(modules):
            if source[: len(outer)] == outer == target[: len(outer)] and node(source) != node(target):
                edges.setdefault(node(source), {}).setdefault(node(target), (source, line))
        for component in cycles(edges):
            if outer and inner.isdisjoint(component):
                continue
            problems.append(f"cycles: {root.joinpath(*outer)}: import cycle of {', '.join(component)}")
            for source in component:
                for target, (name, line) in edges[source].items():
                    if target in component:
                        problems.append(f"    {source} -> {target} at {modules[name].path}:{line}")


def check_crates(root, problems):
    layer = {name: at for at, names in enumerate(CRATES) for name in names}
    uses = {}
    for path in [root / "Cargo.toml", *sorted(root.glob("crates/*/Cargo.toml"))]:
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = [manifest, *manifest.get("target", {}).values()]
        entries = [(key, entry) for table in tables for part in ("dependencies", "build-dependencies")
                   for key, entry in table.get(part, {}).items()]
        names = {entry.get("package", key) if isinstance(entry, dict) else key for key, entry in entries}
        name = manifest["package"]["name"]
        uses[name] = {used for used in names if used.startswith("cuguard")}
        if name not in layer:
            problems.append(f"crates: {path}: {name} has no layer in {Path(__file__).name}")
            continue
        for used in sorted(uses[name]):
            if layer.get(used, len(CRATES)) >= layer[name]:
                problems.append(f"crates: {path}: {name} uses {used}, which is not of a lower layer")
    for name in sorted(NO_CUDA & uses.keys()):
        reached, open_ = set(), [name]
        while open_:
            new = uses.get(open_.pop(), set()) - reached
            reached |= new
            open_ += new
        for used in sorted(reached & CUDA):
            problems.append(f"crates: {name} must know no CUDA, and depends on {used}")


def check_source(modules, problems):
    """The rules for src/ alone."""

    def top(name):
        return name[0] if name else "lib"

    for name, module in sorted(modules.items()):
        if top(name) not in MODULES:
            problems.append(f"modules: {module.path}: {top(name)} has no layer in {Path(__file__).name}")
        for match in re.finditer(r"\b(?:cuguard_driver|driver)\s*::\s*(?:\{[^;]*\b)?api\b", module.code):
            line = module.code.count("\n", 0, match.start()) + 1
            problems.append(f"raw: {module.path}:{line}: uses cuguard_driver::api; call cuguard_driver::result")
        if top(name) not in UNSAFE:
            for word, line in module.tokens:
                if word == "unsafe":
                    problems.append(f"unsafe: {module.path}:{line}: `unsafe` is not allowed in {top(name)}")
    for source, target, line in imports(modules):
        above, below = top(target), top(source)
        if above in MODULES and below in MODULES and MODULES.index(above) > MODULES.index(below):
            problems.append(f"modules: {modules[source].path}:{line}: {below} imports {above}, which stands above it")


def check(root):
    problems = []
    check_crates(root, problems)
    for source in [root / "src", *sorted(root.glob("crates/*/src"))]:
        modules = read_crate(source)
        check_cycles(source, modules, problems)
        if source == root / "src":
            check_source(modules, problems)
    return problems


# A repository in which each rule holds, and changes that each break one.
CLEAN = {
    "Cargo.toml": '[package]\nname = "cuguard"\n[dependencies]\ncuguard-registry = "1"\ncuguard-driver = "1"\n',
    "crates/registry/Cargo.toml": '[package]\nname = "cuguard-registry"\n[dependencies]\ncuguard-sync = "1"\n',
    "crates/registry/src/lib.rs": "mod a;\nmod b;\npub use a::A;\n",
    "crates/registry/src/a.rs": "pub struct A;\n",
    "crates/registry/src/b.rs": "use crate::A;\n",
    "crates/sync/Cargo.toml": '[package]\nname = "cuguard-sync"\n',
    "crates/sync/src/lib.rs": "",
    "src/lib.rs": "mod core;\nmod error;\nmod guards;\npub use guards::Context;\n#[macro_export]\nmacro_rules! m { () => {} }\n",
    "src/error.rs": "//! See [`crate::guards`].\npub struct Error;\n",
    "src/core/mod.rs": "mod gate;\npub(crate) use gate::Gate;\nuse crate::error::Error;\n",
    "src/core/gate.rs": (
        "/// use crate::guards::Context;\npub struct Gate; const S: &str = \"crate::guards\";\n"
        "#[cfg(test)]\nmod tests { use crate::guards::Context; fn f() { unsafe {} } }\n"
    ),
    "src/guards/mod.rs": "mod context;\npub use context::Context;\n",
    "src/guards/context.rs": "use crate::core::{Gate, self};\nuse crate::error::Error;\npub struct Context;\n",
}
BROKEN = [
    ("crates: ", "crates/sync/Cargo.toml", '[dependencies]\ncuguard-registry = "1"\n'),
    ("crates: ", "crates/registry/Cargo.toml", 'cuguard-sys = "1"\n'),
    ("modules: ", "src/core/gate.rs", "use crate::guards::Context;\n"),
    ("modules: ", "src/core/gate.rs", "use super::super::guards;\n"),
    ("modules: ", "src/core/gate.rs", "fn f() { crate::Context; }\n"),
    ("modules: ", "src/core/gate.rs", "use crate::*;\n"),
    ("modules: ", "src/error.rs", "use crate::{core::{Gate}};\n"),
    ("modules: ", "src/extra.rs", ""),
    ("cycles: ", "crates/registry/src/a.rs", "use super::b;\n"),
    ("cycles: ", "src/guards/memory/mod.rs", "use crate::guards::Context;\n", "src/guards/context.rs", "use super::memory;\n"),
    ("cycles: ", "src/guards/event.rs", "use super::context;\n", "src/guards/context.rs", "use super::event;\n"),
    ("raw: ", "src/core/gate.rs", "use cuguard_driver::{api, sys};\n"),
    ("unsafe: ", "src/error.rs", "fn f() { unsafe {} }\n"),
]


def self_test():
    def problems(additions):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, text in (CLEAN | {path: CLEAN.get(path, "") + text for path, text in additions}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return check(root)

    failed = [f"the clean tree: {line}" for line in problems([])]
    for rule, *rest in BROKEN:
        additions = list(zip(rest[::2], rest[1::2]))
        if not any(line.startswith(rule) for line in problems(additions)):
            failed.append(f"{rule}not noticed: {additions}")
    print("\n".join(failed) if failed else f"{len(BROKEN)} violations noticed, none in the clean tree")
    return bool(failed)


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__.strip())
        return 0 if arguments in (["-h"], ["--help"]) else 2
    root = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    problems = check(root)
    print("\n".join(problems) if problems else "the layers hold")
    return bool(problems)


sys.exit(main())
