"""Reads the driver's functions, types and constants from NVIDIA's headers: `scripts/driver-interface.py --fetch`.

`Header(folder, version).lists()` returns the texts of crates/sys/list by file name. Needs libclang's Python module and
a C compiler, whose own headers are used.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

KEYWORDS = set(
    "as box break const continue crate do dyn else enum extern final fn for gen if impl in let loop match mod move mut "
    "priv pub ref return self static struct super trait try type union unsafe use virtual where while yield".split())

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
