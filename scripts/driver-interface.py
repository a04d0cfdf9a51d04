#!/usr/bin/env python3
"""The list of the CUDA driver's functions, types and constants, and the Rust that is generated from it.

    scripts/driver-interface.py            write crates/sys/src/generated from crates/sys/list
    scripts/driver-interface.py --check    fail if the two differ (needs no network)
    scripts/driver-interface.py --fetch    first make crates/sys/list anew, from the headers in NVIDIA's
                                           wheel nvidia-cuda-runtime (needs pip and the network)

The lists are plain text, one entry a line:

    functions.txt    exported name | name without version | number of the version | CUDA version that
                     introduced it | default stream (legacy, ptds, ptsz) | parameters
    types.txt        handles, aliases, enumerations, function pointers, structs and unions with their layout
    constants.txt    enumeration, constant, value
    result_texts.txt what cuGetErrorString returns for each result code (kept by hand; read from a driver)
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "crates/sys/list"
GENERATED = ROOT / "crates/sys/src/generated"

# Enumerations whose module has another name than the one derived from the C name.
MODULES = {
    "CUmemPool_attribute": "pool_attribute",
    "CUmemorytype": "memory_type",
    "CUGLmap_flags": "gl_map_flags",
}

KEYWORDS = set(
    "as box break const continue crate do dyn else enum extern final fn for gen if impl in let loop match mod move mut "
    "priv pub ref return self static struct super trait try type union unsafe use virtual where while yield".split())


# ---------------------------------------------------------------------------------------------------
# From the headers to the lists


# What the headers of OpenGL, EGL and VDPAU define, as far as the driver's signatures name it.
STUBS = {
    "GL/gl.h": "typedef unsigned int GLuint; typedef unsigned int GLenum;",
    "EGL/egl.h": "typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;"
    "typedef int EGLint;",
    "EGL/eglext.h": "",
    "vdpau/vdpau.h": "typedef unsigned int VdpDevice; typedef unsigned int VdpVideoSurface;"
    "typedef unsigned int VdpOutputSurface; typedef unsigned int VdpStatus; typedef unsigned int VdpFuncId;"
    "typedef VdpStatus VdpGetProcAddress(VdpDevice, VdpFuncId, void **);",
    # Not in the wheel.
    "cudaProfiler.h": "#include <cuda.h>\n"
    "typedef enum CUoutput_mode_enum { CU_OUT_KEY_VALUE_PAIR = 0, CU_OUT_CSV = 1 } CUoutput_mode;"
    "CUresult CUDAAPI cuProfilerInitialize(const char *configFile, const char *outputFile, CUoutput_mode outputMode);"
    "CUresult CUDAAPI cuProfilerStart(void); CUresult CUDAAPI cuProfilerStop(void);",
}
FORM = re.compile(r"^(?P<base>cu[A-Za-z0-9_]*?)(?:_v(?P<number>\d+))?(?:_(?P<stream>ptds|ptsz))?$")
PLAIN = {
    "unsigned char": "u8", "signed char": "i8", "char": "c_char", "unsigned short": "u16", "short": "i16",
    "unsigned int": "u32", "int": "i32", "unsigned long": "u64", "long": "i64",
    "unsigned long long": "u64", "long long": "i64", "float": "f32", "double": "f64", "void": "c_void",
    "size_t": "usize", "cuuint32_t": "u32", "cuuint64_t": "u64", "_Bool": "bool",
}


class Header:
    """The headers of one wheel, read with libclang."""

    def __init__(self, include, version):
        from clang import cindex

        self.kinds, self.types = cindex.CursorKind, cindex.TypeKind
        self.version = version
        self.functions, self.since, self.records = {}, {}, {}
        self.handles, self.aliases, self.enums, self.callbacks = set(), {}, {}, {}
        names = "cudaTypedefs cudaProfilerTypedefs cudaGLTypedefs cudaEGLTypedefs cudaVDPAUTypedefs"
        source = "".join(f"#include <{name}.h>\n" for name in names.split())
        for extra in [[], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"]]:
            with tempfile.TemporaryDirectory() as stubs:
                for path, text in STUBS.items():
                    stub = pathlib.Path(stubs, path)
                    stub.parent.mkdir(parents=True, exist_ok=True)
                    stub.write_text(text)
                arguments = ["-x", "c", f"-I{include}", f"-I{stubs}", "-D__CUDA_API_VERSION_INTERNAL", *extra]
                unit = cindex.Index.create().parse(
                    "all.c", args=arguments + compiler_includes(), unsaved_files=[("all.c", source)])
                errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
                if errors:
                    sys.exit("the headers do not compile:\n" + "\n".join(map(str, errors)))
                self.read(unit)

    def read(self, unit):
        kinds = self.kinds
        typedefs = {}
        for cursor in unit.cursor.get_children():
            if cursor.kind == kinds.TYPEDEF_DECL:
                typedefs[cursor.spelling] = cursor
        self.typedefs = typedefs
        # Handles by the tag of the struct that they point to: a function pointer names only that.
        self.tags = {}
        for name, cursor in typedefs.items():
            inner = cursor.underlying_typedef_type.get_canonical().get_pointee()
            if name.startswith("CU") and inner.kind == self.types.RECORD and inner.get_size() < 0:
                self.tags.setdefault(inner.get_declaration().spelling, name)
        for cursor in unit.cursor.get_children():
            name = cursor.spelling
            if cursor.kind == kinds.FUNCTION_DECL and re.match(r"cu[A-Z]", name):
                self.functions[name] = [
                    (parameter.spelling, self.rust(parameter.type)) for parameter in cursor.get_arguments()]
            elif cursor.kind == kinds.TYPEDEF_DECL and name.startswith("PFN_"):
                match = re.match(r"PFN_(\w+?)_v(\d+)(?:_(ptds|ptsz))?$", name)
                if match:
                    base, since, stream = match.groups()
                    self.since.setdefault((base, stream or "legacy"), set()).add(int(since))
            elif cursor.kind == kinds.ENUM_DECL:
                self.enumeration(cursor)

    def enumeration(self, cursor):
        values = [(c.spelling, c.enum_value) for c in cursor.get_children()]
        name = enum_name(cursor.spelling)
        if name != "u32":
            self.enums.setdefault(name, {}).update(values)

    def newest(self, name):
        """`CUdevice` for `CUdevice_v1`, where the two are the same type."""
        short = re.sub(r"_v\d+$", "", name)
        if short != name and short in self.typedefs:
            canonical = lambda n: self.typedefs[n].type.get_canonical().spelling
            if canonical(short) == canonical(name):
                return short
        return name

    def rust(self, kind, at=""):
        """The Rust type, declared in the lists if it has a name."""
        types = self.types
        if kind.kind == types.ELABORATED:
            kind = kind.get_named_type()
        spelling = kind.spelling.removeprefix("const ").removeprefix("struct ").removeprefix("union ").removeprefix("enum ")
        if spelling in PLAIN:
            return PLAIN[spelling]
        if kind.kind == types.TYPEDEF:
            return self.typedef(spelling)
        if kind.kind == types.POINTER:
            inner = kind.get_pointee()
            if inner.get_canonical().kind == types.FUNCTIONPROTO:
                return f"Option<{self.function_pointer(inner.get_canonical())}>"
            tag = inner.get_canonical().get_declaration().spelling
            if tag in self.tags:
                self.handles.add(self.tags[tag])
                return self.tags[tag]
            return ("*const " if inner.is_const_qualified() else "*mut ") + self.rust(inner, at)
        if kind.kind in (types.CONSTANTARRAY, types.INCOMPLETEARRAY):
            return f"[{self.rust(kind.element_type, at)}; {kind.element_count}]"
        if kind.kind == types.RECORD:
            return self.record(kind, at or self.newest(spelling.removesuffix("_st").removesuffix("_union")))
        if kind.kind == types.ENUM:
            return enum_name(spelling)
        sys.exit(f"no Rust type for {kind.spelling} ({kind.kind}) at {at}")

    def function_pointer(self, prototype):
        arguments = ", ".join(self.rust(argument) for argument in prototype.argument_types())
        result = prototype.get_result()
        result = "" if result.kind == self.types.VOID else f" -> {self.rust(result)}"
        return f'unsafe extern "C" fn({arguments}){result}'

    def typedef(self, name):
        types = self.types
        cursor = self.typedefs[name]
        name = self.newest(name)
        under = cursor.underlying_typedef_type
        canonical = under.get_canonical()
        if name == "CUresult":
            return name
        if not name.startswith("CU"):
            return self.rust(under)
        if canonical.kind == types.POINTER:
            inner = canonical.get_pointee()
            if inner.kind == types.FUNCTIONPROTO:
                self.callbacks[name] = self.function_pointer(inner)
                return f"Option<{name}>"
            if inner.kind == types.RECORD and inner.get_size() < 0:
                self.handles.add(name)
                return name
        if canonical.kind == types.ENUM:
            return enum_name(canonical.get_declaration().spelling)
        if canonical.kind == types.RECORD:
            return self.record(canonical, name)
        if canonical.kind == types.CONSTANTARRAY:
            return self.rust(canonical, name)
        self.aliases[name] = self.rust(canonical)
        return name

    def record(self, kind, name):
        declaration = kind.get_declaration()
        key = declaration.get_usr()
        # The name given first stays, unless this one is shorter: a struct has its tag and several typedefs.
        for known, (usr, *_) in list(self.records.items()):
            if usr == key:
                return known
        if kind.get_size() < 0:
            self.records[name] = (key, "opaque", 0, 0, [])
            return name
        union = declaration.kind == self.kinds.UNION_DECL
        self.records[name] = (key, "union" if union else "struct", kind.get_size(), kind.get_align(), [])
        fields = []
        for number, field in enumerate(kind.get_fields()):
            if field.is_bitfield():
                sys.exit(f"{name} has a bit field: {field.spelling}")
            label = field.spelling if re.match(r"\w+$", field.spelling) else f"anonymous{number}"
            type_ = field.type
            declared = type_.get_canonical().get_declaration()
            nested = declared.spelling == "" or "(" in declared.spelling
            if label.startswith("anonymous"):
                # An anonymous union whose first member fills it is that member: the others are further
                # names for the same bytes.
                first = next(iter(type_.get_canonical().get_fields()))
                plain = first.type.get_canonical().kind != self.types.RECORD
                if plain and declared.kind == self.kinds.UNION_DECL and first.type.get_size() == type_.get_size():
                    fields.append((first.spelling, self.rust(first.type), field.get_field_offsetof() // 8))
                    continue
            rust = self.record(type_.get_canonical(), f"{name}_{label}") if nested and \
                type_.get_canonical().kind == self.types.RECORD else self.rust(type_)
            fields.append((label, rust, field.get_field_offsetof() // 8))
        self.records[name] = (key, "union" if union else "struct", kind.get_size(), kind.get_align(), fields)
        return name

    def lists(self):
        streams = {None: "legacy", "ptds": "ptds", "ptsz": "ptsz"}
        chains = {}
        for name in self.functions:
            match = FORM.match(name)
            chain = (match["base"], streams[match["stream"]])
            chains.setdefault(chain, []).append((int(match["number"] or 1), name))
        order = {name: place for place, name in enumerate(self.functions)}
        first = {}
        for name in self.functions:
            first.setdefault(FORM.match(name)["base"], order[name])
        lines = []
        for (base, stream), versions in chains.items():
            versions.sort()
            since = sorted(self.since.get((base, stream), ()))
            if len(since) != len(versions):
                sys.exit(f"{base} ({stream}): exported {versions}, introduced {since}")
            for (number, name), introduced in zip(versions, since):
                parameters = ", ".join(f"{rust_name(p)}: {t}" for p, t in self.functions[name])
                lines.append((first[base], ["legacy", "ptds", "ptsz"].index(stream), number,
                              f"{name} | {base} | {number} | {introduced} | {stream} | {parameters}"))
        functions = [line for *_, line in sorted(lines)]
        types = [f"handle {name}" for name in sorted(self.handles)]
        types += [f"alias {name} {rust}" for name, rust in sorted(self.aliases.items())]
        types += [f"enum {name}" for name in sorted(self.enums) if name != "CUresult"]
        types += [f"callback {name} {rust}" for name, rust in sorted(self.callbacks.items())]
        for name, (_, kind, size, align, fields) in sorted(self.records.items()):
            types.append(f"{kind} {name} {size} {align}")
            types += [f"    {rust_name(label)}: {rust} @{offset}" for label, rust, offset in fields]
        constants = [f"{enum} {name} {value}"
                     for enum, values in sorted(self.enums.items()) for name, value in values.items()]
        note = f"# {self.version}, read by scripts/driver-interface.py --fetch"
        return {name: "\n".join([note, *lines]) + "\n" for name, lines in
                [("functions.txt", functions), ("types.txt", types), ("constants.txt", constants)]}


def enum_name(tag):
    if tag == "cudaError_enum":
        return "CUresult"
    return tag.removesuffix("_enum") if tag.startswith("CU") else "u32"


def rust_name(name):
    return name + "_" if name in KEYWORDS else name


def compiler_includes():
    """Where the compiler's own headers are: the wheel of libclang has none."""
    out = subprocess.run(["cc", "-E", "-v", "-x", "c", "/dev/null"], capture_output=True, text=True).stderr
    inside = out.split("#include <...> search starts here:")[1].split("End of search list")[0]
    return [f"-I{line.strip()}" for line in inside.splitlines() if line.strip()]


def fetch():
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--target", f"{folder}/python", "libclang"], check=True)
        subprocess.run([*pip, "download", "--no-deps", "-d", folder, "nvidia-cuda-runtime"], check=True)
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        zipfile.ZipFile(wheel).extractall(folder)
        sys.path.insert(0, f"{folder}/python")
        header = next(pathlib.Path(folder).rglob("cuda.h"))
        number = int(re.search(r"#define CUDA_VERSION (\d+)", header.read_text())[1])
        version = f"CUDA {number // 1000}.{number % 1000 // 10} ({'-'.join(wheel.name.split('-')[:2])})"
        for name, text in Header(header.parent, version).lists().items():
            (LIST / name).write_text(text)


# ---------------------------------------------------------------------------------------------------
# From the lists to Rust


def lines(name):
    text = (LIST / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def header_version():
    return (LIST / "functions.txt").read_text().splitlines()[0].removeprefix("# ").split(" (")[0]


def functions():
    rows = [[field.strip() for field in line.split("|")] for line in lines("functions.txt")]
    out = ["macro_rules! with_names { ($callback:ident) => { $callback! {"]
    out += [f"    {row[0]}" for row in rows]
    out += ["} }; }", ""]
    names = "\n".join(out)

    doc = {
        "with_names": """
/// Calls the macro `$callback` with the names of all exported functions, as a sequence of identifiers.
///
/// ```
/// macro_rules! names {
///     ($($name:ident)*) => { [$(stringify!($name)),*] };
/// }
/// assert!(cuguard_sys::with_names!(names).contains(&"cuCtxCreate_v4"));
/// ```
#[macro_export]
""",
        "with_functions": """
/// Calls the macro `$callback` with the signatures of all functions, as a sequence of
/// `fn name(parameter: type, ...);`. Each returns a [`CUresult`](crate::CUresult).
///
/// The types are those of this crate; the caller imports them with `use cuguard_sys::*;`.
///
/// ```
/// macro_rules! names {
///     ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => { [$(stringify!($name)),*] };
/// }
/// assert_eq!(cuguard_sys::with_functions!(names), cuguard_sys::NAMES);
/// ```
#[macro_export]
""",
        "signature": """
/// Calls the macro `$callback` with the signature of one function, as `fn name(parameter: type, ...);`,
/// followed by whatever stands behind the callback's name.
///
/// ```
/// macro_rules! parameters {
///     (fn $name:ident($($parameter:ident: $type:ty),*);) => { [$(stringify!($type)),*] };
/// }
/// assert_eq!(cuguard_sys::signature!(cuMemFree_v2, parameters), ["CUdeviceptr"]);
/// ```
#[macro_export]
""",
    }
    signatures = [f"fn {row[0]}({row[5]});" for row in rows]
    out = [doc["with_names"].strip(), names]
    out += [doc["with_functions"].strip(), "macro_rules! with_functions { ($callback:ident) => { $callback! {"]
    out += [f"    {signature}" for signature in signatures] + ["} }; }", ""]
    out += [doc["signature"].strip(), "macro_rules! signature {"]
    out += [f"    ({row[0]}, $callback:ident $($more:tt)*) => {{ $callback! {{ {signature} $($more)* }} }};"
            for row, signature in zip(rows, signatures)]
    out += ["}", ""]
    out += ["/// Every exported function, in the order of [`with_names!`](crate::with_names).",
            f"pub static FUNCTIONS: [FunctionInfo; {len(rows)}] = ["]
    stream = {"legacy": "Legacy", "ptds": "PerThread", "ptsz": "PerThread"}
    out += [f'    function("{row[0]}", "{row[1]}", {row[2]}, {row[3]}, DefaultStream::{stream[row[4]]}),' for row in rows]
    out += ["];", ""]
    return "use crate::function::{DefaultStream, FunctionInfo, function};\n\n" + "\n".join(out)


def module_name(enum):
    if enum in MODULES:
        return MODULES[enum]
    name = re.sub(r"^(CUDA_|CU)", "", enum)
    name = re.sub(r"([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])", r"\1\3_\2\4", name)
    return name.lower().replace("__", "_").strip("_")


def constants():
    enums = {}
    for line in lines("constants.txt"):
        enum, name, value = line.split()
        if enum != "CUresult":
            enums.setdefault(enum, {})[name] = int(value)
    out = []
    for enum, values in enums.items():
        names = list(values)
        prefix = names[0][: names[0].rfind("_") + 1]
        while not all(name.startswith(prefix) for name in names):
            prefix = prefix[: prefix[:-1].rfind("_") + 1]
        out += [f"/// The values of `{enum}`.", f"pub mod {module_name(enum)} {{"]
        for name, value in values.items():
            short = name[len(prefix):]
            if not short or short[0].isdigit():
                short = name.removeprefix("CU_")
            out.append(f"    pub const {short}: u32 = {value % 2**32};")
        out += ["}", ""]
    return "\n".join(out)


def types():
    out, records = [], []
    handles = []
    for line in lines("types.txt"):
        if line.startswith("    "):
            records[-1][-1].append(re.match(r"    (\w+): (.*) @(\d+)$", line).groups())
            continue
        kind, name, *rest = line.split(" ")
        rest = " ".join(rest)
        if kind == "handle":
            handles.append(name)
        elif kind == "alias":
            out += [f"/// The driver's `{name}`.", f"pub type {name} = {rest};"]
        elif kind == "enum":
            out += [f"/// One of the values in [`{module_name(name)}`](super::constants::{module_name(name)}).",
                    f"pub type {name} = u32;"]
        elif kind == "callback":
            out += [f"/// A function of the program that the driver calls.", f"pub type {name} = {rest};"]
        elif kind == "opaque":
            out += [f"/// A type whose layout only the driver knows.", f"pub type {name} = c_void;"]
        else:
            size, align = rest.split()
            records.append((kind, name, int(size), int(align), []))
    out += ["", "handles! {"] + [f"    {name};" for name in handles] + ["}", ""]
    by_name = {record[1]: record for record in records}

    def contains(name, found):
        """Whether a struct, or one inside it, is or has what `found` looks for."""
        kind, *_, fields = by_name[name]
        inner = [word for _, rust, _ in fields if "*" not in rust for word in re.findall(r"\w+", rust)]
        return found(kind, fields) or any(contains(word, found) for word in inner if word in by_name)

    for kind, name, size, align, fields in records:
        # A union has neither `Debug` nor `Default`, and function pointers are not compared.
        shown = not contains(name, lambda kind, _: kind == "union")
        compared = shown and not contains(name, lambda _, fields: any("Option<" in f[1] for f in fields))
        # More than any field has: an attribute of the header.
        layout = f"#[repr(C, align({align}))]" if align > 8 else "#[repr(C)]"
        out += [f"/// The driver's `{name}`.", layout,
                "#[derive(Clone, Copy" + ", Debug" * shown + ", PartialEq" * compared + ")]",
                f"pub {kind} {name} {{"]
        out += [f"    pub {label}: {rust}," for label, rust, _ in fields] + ["}"]
        if shown:
            # Not derived: arrays of more than 32 elements have no `Default`.
            out += [f"impl Default for {name} {{", "    fn default() -> Self {", f"        {name} {{"]
            for label, rust, _ in fields:
                array = re.match(r"\[(\w+); (\d+)\]$", rust)
                zero = f"[Default::default(); {array[2]}]" if array else "Default::default()"
                out.append(f"            {label}: {zero},")
            out += ["        }", "    }", "}"]
        out.append(f"const _: () = assert!(size_of::<{name}>() == {size} && align_of::<{name}>() == {align});")
        out += [f"const _: () = assert!(std::mem::offset_of!({name}, {label}) == {offset});"
                for label, _, offset in fields]
        out.append("")
    return "use std::ffi::{c_char, c_void};\n\nuse crate::CUresult;\nuse crate::handles::handles;\n\n" + "\n".join(out)


def codes():
    values = [line.split() for line in lines("constants.txt")]
    values = [(name, int(value)) for enum, name, value in values if enum == "CUresult"]
    texts = dict(line.split(" ", 1) for line in lines("result_texts.txt"))
    missing = [f"{name} ({value})" for name, value in values if str(value) not in texts]
    if missing:
        sys.exit(f"crates/sys/list/result_texts.txt has no text for {', '.join(missing)}")
    out = ["codes! {"]
    for name, value in sorted(values, key=lambda pair: pair[1]):
        short = name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")
        out.append(f'    {short} = {value}, "{name}", "{texts[str(value)]}";')
    return "use crate::result::codes;\n\n" + "\n".join(out) + "\n}\n"


MOD = """\
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_snake_case,
    non_upper_case_globals,
    non_camel_case_types,
    reason = "the driver's own names, documented by the driver"
)]

#[rustfmt::skip]
mod codes;
#[rustfmt::skip]
pub(crate) mod constants;
#[rustfmt::skip]
pub(crate) mod functions;
#[rustfmt::skip]
pub(crate) mod types;
"""


def generate():
    made = "//! Generated by scripts/driver-interface.py from the lists in crates/sys/list: do not edit.\n"
    about = {
        "mod.rs": "//! What the driver's header defines.\n//! The header is that of " + header_version() + ".\n",
        "functions.rs": "//! The functions, their signatures, and when each appeared.\n",
        "constants.rs": "//! The values of the header's enumerations, one module for each.\n",
        "types.rs": "//! The types of the signatures, with the header's names and layout.\n",
        "codes.rs": "//! The result codes.\n",
    }
    bodies = {
        "mod.rs": MOD,
        "functions.rs": functions(), "constants.rs": constants(), "types.rs": types(), "codes.rs": codes(),
    }
    return {name: f"{about[name]}//!\n{made}\n{body}" for name, body in bodies.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--check", action="store_true", help="fail if list and generated code differ")
    group.add_argument("--fetch", action="store_true", help="make the lists anew from NVIDIA's wheel")
    options = parser.parse_args()
    if options.fetch:
        fetch()
    differ = []
    for name, text in generate().items():
        path = GENERATED / name
        if options.check:
            if not path.exists() or path.read_text() != text:
                differ.append(str(path.relative_to(ROOT)))
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    if differ:
        sys.exit(f"{', '.join(differ)}: not what scripts/driver-interface.py makes of crates/sys/list; run it")


if __name__ == "__main__":
    main()
