//! Images of modules: PTX that is right or wrong, binaries, files, the log of the compiler.

use std::ffi::CString;
use std::ptr;

use super::kernels::{function, load, load_result};
use super::modules::CODE;
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"module_images":
    not_code,
    versions,
    texts,
    malformed,
    binaries,
    files,
    log,
    linked,
    linker_errors,
}

const HEADER: &str = ".version 7.0\n.target sm_52\n.address_size 64\n";

/// Loads an image, and checks that a failure leaves the handle as it was.
fn check(c: &Case, what: &str, text: &str, want: Code) {
    let mut module = CUmodule(0x77);
    c.expect(what, load_result(&mut module, text), want);
    if want == Code::SUCCESS {
        c.ok("unload", cuModuleUnload(module));
    } else {
        c.same("the handle is as it was", module, CUmodule(0x77));
    }
}

/// Text that is not PTX at all is INVALID_IMAGE.
fn not_code(c: &Case) {
    primary(c);
    for text in [
        "",
        " ",
        "\n",
        "nonsense",
        ".target sm_52\n.address_size 64\n",
    ] {
        check(c, &format!("{text:?}"), text, Code::INVALID_IMAGE);
    }
    let (mut module, null) = (CUmodule::NULL, ptr::null_mut());
    c.invalid("null", cuModuleLoadData(&mut module, ptr::null()));
    let image = c"nonsense".as_ptr().cast();
    c.invalid("nowhere to write", cuModuleLoadData(null, image));
    c.invalid(
        "null as a fatbin",
        cuModuleLoadFatBinary(&mut module, ptr::null()),
    );
    let result = cuModuleLoadFatBinary(&mut module, image);
    c.expect("nonsense as a fatbin", result, Code::INVALID_IMAGE);
}

/// PTX is of a version and for an architecture that the driver knows.
fn versions(c: &Case) {
    primary(c);
    let text = |version: &str, target: &str| {
        format!(
            ".version {version}\n.target {target}\n.address_size 64\n.visible .entry e() {{ ret; }}\n"
        )
    };
    for (version, target, want) in [
        ("9.0", "sm_52", Code::SUCCESS),
        ("99.0", "sm_52", Code::UNSUPPORTED_PTX_VERSION),
        ("7.0", "sm_20", Code::SUCCESS),
        ("7.0", "sm_35", Code::SUCCESS),
        ("8.0", "sm_90", Code::SUCCESS),
        ("8.0", "sm_90a", Code::SUCCESS),
        ("7.0", "sm_90", Code::INVALID_PTX),
        ("8.7", "sm_100", Code::INVALID_PTX),
        ("8.7", "sm_999", Code::INVALID_PTX),
    ] {
        check(
            c,
            &format!("{version} for {target}"),
            &text(version, target),
            want,
        );
    }
}

/// White space, comments and the order of declarations are as free as in C.
fn texts(c: &Case) {
    primary(c);
    let entry = ".visible .entry e() { ret; }\n";
    for (what, text) in [
        ("a header alone", HEADER.to_owned()),
        (
            "no address size",
            ".version 7.0\n.target sm_52\n".to_owned(),
        ),
        ("white space first", format!("  \n\t{HEADER}{entry}")),
        ("a line comment first", format!("// hello\n{HEADER}{entry}")),
        (
            "a block comment first",
            format!("/* hello */\n{HEADER}{entry}"),
        ),
        (
            "lines of Windows",
            format!("{HEADER}{entry}").replace('\n', "\r\n"),
        ),
        (
            "old PTX",
            ".version 1.4\n.target sm_10\n.entry e { ret; }\n".to_owned(),
        ),
        (
            "an external function that is not called",
            format!("{HEADER}.extern .func foo();\n{entry}"),
        ),
        (
            "dynamic shared memory",
            format!("{HEADER}.extern .shared .align 4 .b8 s[];\n{entry}"),
        ),
        (
            "more threads than there can be",
            format!("{HEADER}.visible .entry e()\n.maxntid 2048, 1, 1\n{{ ret; }}\n"),
        ),
    ] {
        check(c, what, &text, Code::SUCCESS);
    }
}

/// Malformed PTX is INVALID_PTX.
fn malformed(c: &Case) {
    primary(c);
    check(c, "a version alone", ".version 7.0\n", Code::INVALID_PTX);
    let text = ".version 7.0\n.address_size 64\n.visible .entry e() { ret; }\n";
    check(c, "no target", text, Code::INVALID_PTX);
    let text = ".version 7.0\n.target sm_52\n.address_size 32\n.visible .entry e() { ret; }\n";
    check(c, "32 bits", text, Code::INVALID_PTX);
    for text in [
        ".visible .entry e() { ret;\n",
        ".visible .entry e()\n",
        ".visible .entry e() { ret; } /* open\n",
        ".visible .entry e() { ret; }\nhello\n",
        ".visible .entry e() { ret }\n",
        ".visible .entry e(.param .u32 a, .param .u32 a) { ret; }\n",
        ".visible .entry e(.param .u33 a) { ret; }\n",
        ".visible .entry e(.param .u32 a .param .u32 b) { ret; }\n",
        ".visible .entry e(.param .u32 a,) { ret; }\n",
        ".visible .entry e(.param .align 3 .b8 a[4]) { ret; }\n",
        ".visible .entry e(.param .align 8 .b8 a[4353]) { ret; }\n",
        ".visible .entry e() { ret; }\n.visible .entry e() { ret; }\n",
        ".visible .entry e()\n.maxntid 0, 1, 1\n{ ret; }\n",
        ".visible .global .b8 g[0];\n",
        ".visible .global .b8 g[];\n",
        ".visible .global .u32 g = {1, 2};\n",
    ] {
        check(
            c,
            text.trim_end(),
            &format!("{HEADER}{text}"),
            Code::INVALID_PTX,
        );
    }
}

/// What starts like a binary and is none is INVALID_IMAGE; a container without code has no binary for the device.
fn binaries(c: &Case) {
    primary(c);
    let mut image = [0_u8; 4096];
    image[..4].copy_from_slice(b"\x7fELF");
    let load = |image: &[u8; 4096]| {
        let mut module = CUmodule::NULL;
        cuModuleLoadData(&mut module, image.as_ptr().cast())
    };
    c.expect("ELF and zeros", load(&image), Code::INVALID_IMAGE);
    image[4..7].copy_from_slice(&[2, 1, 1]);
    c.expect("of 64 bits", load(&image), Code::INVALID_IMAGE);
    // `ET_EXEC`, `EM_X86_64`
    image[16..20].copy_from_slice(&[2, 0, 62, 0]);
    c.expect("for x86", load(&image), Code::INVALID_IMAGE);
    let mut image = [0_u8; 4096];
    image[..4].copy_from_slice(&0xBA55_ED50_u32.to_le_bytes());
    c.expect("fatbin and zeros", load(&image), Code::INVALID_IMAGE);
    image[4..8].copy_from_slice(&[1, 0, 16, 0]);
    c.expect(
        "fatbin without images",
        load(&image),
        Code::NO_BINARY_FOR_GPU,
    );
}

/// Files.
fn files(c: &Case) {
    primary(c);
    let mut module = CUmodule::NULL;
    let want = Code::FILE_NOT_FOUND;
    c.expect(
        "missing",
        cuModuleLoad(&mut module, c"/nope/x.ptx".as_ptr()),
        want,
    );
    c.expect(
        "empty",
        cuModuleLoad(&mut module, c"/dev/null".as_ptr()),
        Code::INVALID_IMAGE,
    );
    c.invalid("no name", cuModuleLoad(&mut module, ptr::null()));
    c.invalid("an empty name", cuModuleLoad(&mut module, c"".as_ptr()));
    let path = std::env::temp_dir().join(format!("conformance-{}.ptx", std::process::id()));
    if let Err(error) = std::fs::write(&path, CODE) {
        c.stop(format_args!("cannot write {}: {error}", path.display()));
    }
    let name = CString::new(path.to_string_lossy().into_owned()).unwrap_or_default();
    c.ok("PTX", cuModuleLoad(&mut module, name.as_ptr()));
    function(c, module, c"two");
    c.ok("unload", cuModuleUnload(module));
    let _ = std::fs::remove_file(&path);
}

/// The log of the compiler is written to the program's buffer, and its length to the option.
fn log(c: &Case) {
    primary(c);
    let (mut module, mut buffer) = (CUmodule::NULL, [b'x'; 512]);
    let mut load = |text: &str, buffer: &mut [u8]| {
        let text = CString::new(text).unwrap_or_default();
        let mut options = [
            jit_option::ERROR_LOG_BUFFER,
            jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        let size = ptr::without_provenance_mut(buffer.len());
        let mut values = [buffer.as_mut_ptr().cast::<c_void>(), size];
        let image = text.as_ptr().cast();
        let (options, values_at) = (options.as_mut_ptr(), values.as_mut_ptr());
        let result = cuModuleLoadDataEx(&mut module, image, 2, options, values_at);
        let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(0);
        (
            result,
            values[1].addr(),
            String::from_utf8_lossy(&buffer[..end]).into_owned(),
        )
    };
    let (result, len, text) = load(CODE, &mut buffer);
    c.ok("PTX", result);
    c.same("the log is empty", (len, text), (0, String::new()));
    let broken = format!("{HEADER}.visible .entry e(.param .u33 a) {{ ret; }}\n");
    let (result, len, text) = load(&broken, &mut buffer);
    c.expect("malformed PTX", result, Code::INVALID_PTX);
    c.yes("its length", len == text.len());
    c.yes(
        "it names the line",
        text.contains("ptxas application ptx input, line 4;"),
    );
    let (result, len, text) = load("nonsense", &mut buffer);
    c.expect("nonsense", result, Code::INVALID_IMAGE);
    c.yes("there is a message", len == text.len() && len > 0);
    let (result, len, text) = load(&broken, &mut buffer[..10]);
    c.expect("a short buffer", result, Code::INVALID_PTX);
    c.same(
        "the length and the text",
        (len, text.as_str()),
        (10, "ptxas app"),
    );
    let mut info = [b'x'; 100];
    let (mut options, size) = (
        [
            jit_option::INFO_LOG_BUFFER,
            jit_option::INFO_LOG_BUFFER_SIZE_BYTES,
        ],
        ptr::without_provenance_mut(info.len()),
    );
    let mut values = [info.as_mut_ptr().cast::<c_void>(), size];
    let code = CString::new(CODE).unwrap_or_default();
    let (image, values_at) = (code.as_ptr().cast(), values.as_mut_ptr());
    let options = options.as_mut_ptr();
    let result = cuModuleLoadDataEx(&mut module, image, 2, options, values_at);
    c.ok("with a buffer for information", result);
    c.same("which is empty", (values[1].addr(), info[0]), (0, 0));
    let image = c"nonsense".as_ptr().cast();
    let null = ptr::null_mut();
    c.invalid(
        "no options",
        cuModuleLoadDataEx(&mut module, image, 1, ptr::null_mut(), null),
    );
    let (mut option, mut value) = (777, null_value());
    let result = cuModuleLoadDataEx(&mut module, image, 1, &mut option, &mut value);
    c.invalid("an unknown option", result);
}

fn null_value() -> *mut c_void {
    ptr::null_mut()
}

fn linker(c: &Case) -> CUlinkState {
    let (mut linker, options, values) = (CUlinkState::NULL, ptr::null_mut(), ptr::null_mut());
    c.require(
        "cuLinkCreate",
        cuLinkCreate_v2(0, options, values, &mut linker),
    );
    linker
}

/// Text with the NUL that a real driver reads it up to.
fn terminated(text: &str) -> Vec<u8> {
    format!("{text}\0").into_bytes()
}

fn add(linker: CUlinkState, kind: u32, data: &[u8]) -> CUresult {
    let (options, values) = (ptr::null_mut(), ptr::null_mut());
    let from = data.as_ptr().cast_mut().cast();
    cuLinkAddData_v2(
        linker,
        kind,
        from,
        data.len(),
        c"x".as_ptr(),
        0,
        options,
        values,
    )
}

/// Linked PTX is a binary that can be loaded.
fn linked(c: &Case) {
    primary(c);
    let linker = linker(c);
    let ptx = jit_input_type::INPUT_PTX;
    c.ok("add", add(linker, ptx, &terminated(CODE)));
    let other = format!("{HEADER}.visible .entry other(.param .u32 z) {{ ret; }}\n\0");
    c.ok("add another", add(linker, ptx, other.as_bytes()));
    let (mut image, mut size) = (ptr::null_mut(), 0);
    c.invalid(
        "complete to null",
        cuLinkComplete(linker, ptr::null_mut(), ptr::null_mut()),
    );
    c.ok("complete", cuLinkComplete(linker, &mut image, &mut size));
    c.yes("it has a size", size > 64);
    let again = cuLinkComplete(linker, &mut image, &mut size);
    c.expect("complete again", again, Code::INVALID_HANDLE);
    c.invalid("add then", add(linker, ptx, &terminated(CODE)));
    let mut module = CUmodule::NULL;
    c.ok("load it", cuModuleLoadData(&mut module, image));
    c.ok("destroy the linker", cuLinkDestroy(linker));
    function(c, module, c"other");
    let first = function(c, module, c"first");
    let (mut offset, mut bytes) = (0, 0);
    c.ok(
        "a parameter",
        cuFuncGetParamInfo(first, 2, &mut offset, &mut bytes),
    );
    c.same("its place", (offset, bytes), (16, 24));
    let mut value = 0;
    c.ok("threads", cuFuncGetAttribute(&mut value, 0, first));
    c.same("threads", value, 128);
    let shared = function(c, module, c"with_shared");
    c.ok("shared memory", cuFuncGetAttribute(&mut value, 1, shared));
    c.same("shared memory", value, 2048);
    let mut ptr = 0;
    let name = c"counter".as_ptr();
    c.ok(
        "a variable",
        cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name),
    );
    c.same("its value", read(c, ptr, bytes), vec![7, 0, 0, 0]);
    c.ok("unload", cuModuleUnload(module));
}

/// What the linker does not accept.
fn linker_errors(c: &Case) {
    start(c);
    let (mut state, options, values) = (CUlinkState::NULL, ptr::null_mut(), ptr::null_mut());
    let result = cuLinkCreate_v2(0, options, values, &mut state);
    c.expect("create without a context", result, Code::INVALID_CONTEXT);
    primary(c);
    c.invalid(
        "create to null",
        cuLinkCreate_v2(0, options, values, ptr::null_mut()),
    );
    let (ptx, cubin) = (jit_input_type::INPUT_PTX, jit_input_type::INPUT_CUBIN);
    let own = linker(c);
    let (mut image, mut size) = (ptr::null_mut(), 0);
    let null = CUlinkState::NULL;
    let want = Code::INVALID_HANDLE;
    c.expect("add to null", add(null, ptx, &terminated(CODE)), want);
    c.expect("destroy null", cuLinkDestroy(null), want);
    c.invalid("add nothing", add(own, ptx, &[]));
    c.invalid("add an unknown kind", add(own, 99, &terminated(CODE)));
    c.expect(
        "add nonsense",
        add(own, ptx, b"nonsense\0"),
        Code::INVALID_IMAGE,
    );
    let broken = format!("{HEADER}.visible .entry e(.param .u33 a) {{ ret; }}\n\0");
    c.expect(
        "add malformed PTX",
        add(own, ptx, broken.as_bytes()),
        Code::INVALID_PTX,
    );
    c.ok("complete", cuLinkComplete(own, &mut image, &mut size));
    let module = load_result_of(c, image);
    let mut count = 9;
    c.ok("count", cuModuleGetFunctionCount(&mut count, module));
    c.same("functions of nothing", count, 0);
    c.ok("destroy", cuLinkDestroy(own));
    let own = linker(c);
    c.ok("add", add(own, ptx, &terminated(CODE)));
    c.expect(
        "add the same",
        add(own, ptx, &terminated(CODE)),
        Code::UNKNOWN,
    );
    let result = cuLinkComplete(own, &mut image, &mut size);
    c.expect("complete then", result, Code::UNKNOWN);
    c.ok("destroy", cuLinkDestroy(own));
    let own = linker(c);
    c.expect(
        "add PTX as a cubin",
        add(own, cubin, &terminated(CODE)),
        Code::INVALID_IMAGE,
    );
    let file = |path| cuLinkAddFile_v2(own, ptx, path, 0, options, values);
    c.expect(
        "add a missing file",
        file(c"/nope".as_ptr()),
        Code::FILE_NOT_FOUND,
    );
    c.invalid("add no file", file(ptr::null()));
    c.ok("destroy", cuLinkDestroy(own));
    c.ok("nothing else is broken", cuModuleUnload(load(c, CODE)));
}

fn load_result_of(c: &Case, image: *mut c_void) -> CUmodule {
    let mut module = CUmodule::NULL;
    c.require("cuModuleLoadData", cuModuleLoadData(&mut module, image));
    module
}
