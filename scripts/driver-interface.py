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
    "CUdevice_P2PAttribute": "device_p2p_attribute",
    "CUmemcpy3DOperandType": "memcpy3d_operand_type",
    "CUtensorMapFloatOOBfill": "tensor_map_float_oob_fill",
    "CUtensorMapIm2ColWideMode": "tensor_map_im2col_wide_mode",
}

CONSTANT = r"(\w+) (\w+) (-?\d+)"


def fetch():
    """Makes the lists anew. The wheels go to a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        for arguments in [["install", "--target", f"{folder}/python", "libclang"],
                          ["download", "--no-deps", "-d", folder, "nvidia-cuda-runtime"]]:
            if subprocess.run([*pip, *arguments]).returncode != 0:
                fail(f"pip {' '.join(arguments[:1])} failed: --fetch needs pip and the network")
        wheel = next(pathlib.Path(folder).glob("*.whl"))
        zipfile.ZipFile(wheel).extractall(folder)
        sys.path[:0] = [f"{folder}/python", str(ROOT / "scripts")]
        from driver_header import Header

        header = next(pathlib.Path(folder).rglob("cuda.h"), None) or fail(f"{wheel.name} has no cuda.h")
        number = int(re.search(r"#define CUDA_VERSION (\d+)", header.read_text())[1])
        version = f"CUDA {number // 1000}.{number % 1000 // 10} ({'-'.join(wheel.name.split('-')[:2])})"
        for name, text in Header(header.parent, version).lists().items():
            (LIST / name).write_text(text)


def fail(words):
    sys.exit(f"scripts/driver-interface.py: {words}")


def lines(name, form):
    """The entries of a list, each as the groups of the regular expression that it has to match."""
    path = LIST / name
    if not path.exists():
        fail(f"{path.relative_to(ROOT)} is missing: restore it, or make the lists anew with --fetch")
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line and not line.startswith("#"):
            match = re.fullmatch(form, line)
            if not match:
                fail(f"{path.relative_to(ROOT)}:{number}: not an entry: {line}")
            entries.append(match.groups())
    return entries


def header_version():
    return (LIST / "functions.txt").read_text().splitlines()[0].removeprefix("# ").split(" (")[0]


def functions():
    rows = lines("functions.txt", r"(\w+) \| (\w+) \| (\d+) \| (\d+) \| (legacy|ptds|ptsz) \| ?(.*)")
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
    for enum, name, value in lines("constants.txt", CONSTANT):
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


# Constants of CUdevice_attribute that are older names of others, or none of an attribute.
NO_ATTRIBUTES = {"VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED", "MAX"}


def attributes():
    """The attributes of devices, one name for each value."""
    prefix, found = "CU_DEVICE_ATTRIBUTE_", {}
    for enum, name, value in lines("constants.txt", CONSTANT):
        short = name.removeprefix(prefix)
        if enum == "CUdevice_attribute" and short not in NO_ATTRIBUTES:
            found.setdefault(int(value), short)
    out = ["""
/// Calls the macro `$callback` with all attributes of devices, as a sequence of `Variant CONSTANT;`: a name in
/// the style of Rust's enumerations, and the constant of
/// [`device_attribute`](crate::device_attribute). Older names of the same attribute are left out.
///
/// ```
/// macro_rules! names {
///     ($($variant:ident $constant:ident;)*) => { [$(stringify!($variant)),*] };
/// }
/// assert!(cuguard_sys::with_device_attributes!(names).contains(&"WarpSize"));
/// ```
#[macro_export]
""".strip(), "macro_rules! with_device_attributes { ($callback:ident) => { $callback! {"]
    for _, short in sorted(found.items()):
        variant = "".join(word.capitalize() for word in short.split("_"))
        out.append(f"    {variant} {short};")
    return "\n".join([*out, "} }; }", ""])


def types():
    out, records = [], []
    handles = []
    form = r"    (\w+): (.*) @(\d+)|(handle|alias|enum|callback|opaque|struct|union) (\w+) ?(.*)"
    for *field, kind, name, rest in lines("types.txt", form):
        if field[0]:
            records[-1][-1].append(field)
        elif kind == "handle":
            handles.append(name)
        elif kind == "alias":
            out += [f"/// The driver's `{name}`.", f"pub type {name} = {rest};"]
        elif kind == "enum":
            out += [f"/// One of the values in [`{module_name(name)}`](super::constants::{module_name(name)}).",
                    f"pub type {name} = u32;"]
        elif kind == "callback":
            out += ["/// A function of the program that the driver calls.", f"pub type {name} = {rest};"]
        elif kind == "opaque":
            out += ["/// A type whose layout only the driver knows.", f"pub type {name} = c_void;"]
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
        # Arrays of more than 32 elements have no `Default`, so it cannot be derived for what contains one.
        arrays = [re.match(r"\[(\w+); (\d+)\]$", rust) for _, rust, _ in fields]
        derived = shown and not any(array and int(array[2]) > 32 for array in arrays)
        # More than any field has: an attribute of the header.
        layout = f"#[repr(C, align({align}))]" if align > 8 else "#[repr(C)]"
        out += [f"/// The driver's `{name}`.", layout,
                "#[derive(Clone, Copy" + ", Debug" * shown + ", Default" * derived + ", PartialEq" * compared + ")]",
                f"pub {kind} {name} {{"]
        out += [f"    pub {label}: {rust}," for label, rust, _ in fields] + ["}"]
        if shown and not derived:
            out += [f"impl Default for {name} {{", "    fn default() -> Self {", f"        {name} {{"]
            for (label, _, _), array in zip(fields, arrays):
                zero = f"[Default::default(); {array[2]}]" if array else "Default::default()"
                out.append(f"            {label}: {zero},")
            out += ["        }", "    }", "}"]
        out.append(f"const _: () = assert!(size_of::<{name}>() == {size} && align_of::<{name}>() == {align});")
        out += [f"const _: () = assert!(std::mem::offset_of!({name}, {label}) == {offset});"
                for label, _, offset in fields]
        out.append("")
    return "use std::ffi::{c_char, c_void};\n\nuse crate::CUresult;\nuse crate::handles::handles;\n\n" + "\n".join(out)


def codes():
    values = [(name, int(value)) for enum, name, value in lines("constants.txt", CONSTANT) if enum == "CUresult"]
    texts = dict(lines("result_texts.txt", r"(\d+) (.+)"))
    missing = [f"{name} ({value})" for name, value in values if str(value) not in texts]
    if missing:
        fail(f"crates/sys/list/result_texts.txt has no text for {', '.join(missing)}")
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
mod attributes;
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
        "attributes.rs": "//! The attributes of devices.\n",
    }
    bodies = {
        "mod.rs": MOD,
        "functions.rs": functions(), "constants.rs": constants(), "types.rs": types(), "codes.rs": codes(),
        "attributes.rs": attributes(),
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
