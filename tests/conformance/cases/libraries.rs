//! Libraries: code that is loaded without a context, and into each context that uses it.

use std::ffi::{CStr, CString};
use std::ptr;

use super::modules::{CODE, KERNELS};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"libraries":
    kernels,
    enumeration,
    in_a_context,
    two_contexts,
    variables,
    attributes,
    parameters,
    wrong_code,
    errors,
}

/// The result of loading a library.
fn load_result(library: &mut CUlibrary, text: &str) -> CUresult {
    let text = CString::new(text).unwrap_or_default();
    let (options, values) = (ptr::null_mut(), ptr::null_mut());
    let (more, more_values) = (ptr::null_mut(), ptr::null_mut());
    let code = text.as_ptr().cast();
    cuLibraryLoadData(library, code, options, values, 0, more, more_values, 0)
}

fn load(c: &Case, text: &str) -> CUlibrary {
    let mut library = CUlibrary::NULL;
    c.require("cuLibraryLoadData", load_result(&mut library, text));
    library
}

fn kernel(c: &Case, library: CUlibrary, name: &CStr) -> CUkernel {
    let mut kernel = CUkernel::NULL;
    let result = cuLibraryGetKernel(&mut kernel, library, name.as_ptr());
    c.require("cuLibraryGetKernel", result);
    kernel
}

fn name_of(c: &Case, kernel: CUkernel) -> String {
    let mut name = ptr::null();
    c.require("cuKernelGetName", cuKernelGetName(&mut name, kernel));
    text(name).unwrap_or_default()
}

/// Kernels are found by name, without a context.
fn kernels(c: &Case) {
    start(c);
    let library = load(c, CODE);
    let first = kernel(c, library, c"first");
    c.same_handle("the same handle again", kernel(c, library, c"first"), first);
    kernel(c, library, c"not_visible");
    let mut found = CUkernel::NULL;
    for name in [c"nope", c"helper", c"counter", c""] {
        let result = cuLibraryGetKernel(&mut found, library, name.as_ptr());
        c.expect(format_args!("{name:?}"), result, Code::NOT_FOUND);
    }
    c.same("its name", name_of(c, first), "first".to_owned());
    let mut of = CUlibrary::NULL;
    c.ok("its library", cuKernelGetLibrary(&mut of, first));
    c.same_handle("its library", of, library);
    c.ok("unload", cuLibraryUnload(library));
}

/// A library's kernels are counted and listed.
fn enumeration(c: &Case) {
    start(c);
    let library = load(c, CODE);
    let mut count = 0;
    c.ok("count", cuLibraryGetKernelCount(&mut count, library));
    c.same("kernels", count, KERNELS.len() as u32);
    let mut all = [CUkernel::NULL; 20];
    c.ok(
        "list 20",
        cuLibraryEnumerateKernels(all.as_mut_ptr(), 20, library),
    );
    let found = all.iter().filter(|kernel| !kernel.is_null());
    let mut names: Vec<_> = found.map(|kernel| name_of(c, *kernel)).collect();
    names.sort();
    let mut want = KERNELS.map(str::to_owned).to_vec();
    want.sort();
    c.same("their names", names, want);
    let mut some = [CUkernel::NULL; 20];
    c.ok(
        "list 2",
        cuLibraryEnumerateKernels(some.as_mut_ptr(), 2, library),
    );
    c.same(
        "two are listed",
        some.iter().filter(|k| !k.is_null()).count(),
        2,
    );
    let null = ptr::null_mut();
    c.invalid("list to null", cuLibraryEnumerateKernels(null, 2, library));
    c.invalid(
        "count to null",
        cuLibraryGetKernelCount(ptr::null_mut(), library),
    );
}

/// In a context a library is a module, which the library owns.
fn in_a_context(c: &Case) {
    start(c);
    let library = load(c, CODE);
    let first = kernel(c, library, c"first");
    let (mut module, mut function) = (CUmodule::NULL, CUfunction::NULL);
    let want = Code::INVALID_CONTEXT;
    c.expect(
        "module without a context",
        cuLibraryGetModule(&mut module, library),
        want,
    );
    c.expect(
        "function without a context",
        cuKernelGetFunction(&mut function, first),
        want,
    );
    primary(c);
    c.ok("function", cuKernelGetFunction(&mut function, first));
    c.ok("module", cuLibraryGetModule(&mut module, library));
    let (mut again, mut same) = (CUmodule::NULL, CUfunction::NULL);
    c.ok("module again", cuLibraryGetModule(&mut again, library));
    c.same_handle("it is the same", again, module);
    let name = c"first".as_ptr();
    c.ok(
        "function of the module",
        cuModuleGetFunction(&mut same, module, name),
    );
    c.same_handle("it is the same", same, function);
    c.ok(
        "module of the function",
        cuFuncGetModule(&mut again, function),
    );
    c.same_handle("it is the same", again, module);
    c.expect(
        "unload the module",
        cuModuleUnload(module),
        Code::NOT_PERMITTED,
    );
    c.ok("unload", cuLibraryUnload(library));
    let result = cuModuleGetFunction(&mut same, module, name);
    c.expect("function then", result, Code::INVALID_HANDLE);
}

/// Each context has a module of its own.
fn two_contexts(c: &Case) {
    primary(c);
    let library = load(c, CODE);
    let (mut one, mut two) = (CUmodule::NULL, CUmodule::NULL);
    c.ok("module", cuLibraryGetModule(&mut one, library));
    let other = create(c);
    c.ok(
        "module in another context",
        cuLibraryGetModule(&mut two, library),
    );
    c.yes("it is another one", one != two);
    c.require("destroy", cuCtxDestroy_v2(other));
    primary(c);
    c.ok(
        "module in the first again",
        cuLibraryGetModule(&mut two, library),
    );
    c.same_handle("it is the same", two, one);
    c.ok("unload", cuLibraryUnload(library));
}

/// Variables are those of the module in the current context.
fn variables(c: &Case) {
    start(c);
    let library = load(c, CODE);
    let (mut ptr, mut bytes) = (0, 0);
    let name = c"counter".as_ptr();
    let result = cuLibraryGetGlobal(&mut ptr, &mut bytes, library, name);
    c.expect("without a context", result, Code::INVALID_CONTEXT);
    primary(c);
    c.ok(
        "counter",
        cuLibraryGetGlobal(&mut ptr, &mut bytes, library, name),
    );
    c.same("its value", read(c, ptr, bytes), vec![7, 0, 0, 0]);
    let (mut module, mut same) = (CUmodule::NULL, 0);
    c.ok("module", cuLibraryGetModule(&mut module, library));
    c.ok(
        "of the module",
        cuModuleGetGlobal_v2(&mut same, &mut bytes, module, name),
    );
    c.same_handle("it is the same", same, ptr);
    let nope = c"nope".as_ptr();
    let result = cuLibraryGetGlobal(&mut ptr, &mut bytes, library, nope);
    c.expect("a name that is not there", result, Code::NOT_FOUND);
    let result = cuLibraryGetManaged(&mut ptr, &mut bytes, library, name);
    c.expect("as managed memory", result, Code::NOT_FOUND);
    let result = cuLibraryGetGlobal(ptr::null_mut(), ptr::null_mut(), library, name);
    c.invalid("to null", result);
    c.invalid(
        "no name",
        cuLibraryGetGlobal(&mut ptr, &mut bytes, library, ptr::null()),
    );
}

/// What is set about a kernel holds for its functions.
fn attributes(c: &Case) {
    let dynamic = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let device = start(c);
    let library = load(c, CODE);
    let first = kernel(c, library, c"first");
    let mut value = 0;
    c.ok(
        "threads",
        cuKernelGetAttribute(&mut value, 0, first, device),
    );
    c.same("threads", value, 128);
    c.ok("set", cuKernelSetAttribute(dynamic, 100_000, first, device));
    c.ok(
        "get",
        cuKernelGetAttribute(&mut value, dynamic, first, device),
    );
    c.same("dynamic", value, 100_000);
    primary(c);
    let mut function = CUfunction::NULL;
    c.ok("function", cuKernelGetFunction(&mut function, first));
    c.ok(
        "of the function",
        cuFuncGetAttribute(&mut value, dynamic, function),
    );
    c.same("dynamic of the function", value, 100_000);
    c.invalid(
        "set 300000",
        cuKernelSetAttribute(dynamic, 300_000, first, device),
    );
    c.invalid("set the threads", cuKernelSetAttribute(0, 1, first, device));
    c.invalid(
        "attribute 99",
        cuKernelGetAttribute(&mut value, 99, first, device),
    );
    c.invalid(
        "to null",
        cuKernelGetAttribute(ptr::null_mut(), 0, first, device),
    );
    let want = Code::INVALID_DEVICE;
    c.expect(
        "device 99",
        cuKernelGetAttribute(&mut value, 0, first, 99),
        want,
    );
    c.expect(
        "set on device 99",
        cuKernelSetAttribute(dynamic, 1, first, 99),
        want,
    );
    c.expect(
        "cache on device 99",
        cuKernelSetCacheConfig(first, 0, 99),
        want,
    );
    c.ok("cache", cuKernelSetCacheConfig(first, 1, device));
    c.invalid("cache 9", cuKernelSetCacheConfig(first, 9, device));
    let as_function = CUfunction(first.0);
    let want = Code::INVALID_HANDLE;
    c.expect(
        "as a function",
        cuFuncGetAttribute(&mut value, 0, as_function),
        want,
    );
    let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut value, as_function, 32, 0);
    c.ok("occupancy of a kernel", result);
}

/// The parameters of a kernel need a context.
fn parameters(c: &Case) {
    start(c);
    let library = load(c, CODE);
    let first = kernel(c, library, c"first");
    let (mut offset, mut size) = (77, 77);
    let result = cuKernelGetParamInfo(first, 1, &mut offset, &mut size);
    c.expect("without a context", result, Code::INVALID_CONTEXT);
    primary(c);
    for (index, want) in [(0, 1), (8, 8), (16, 24), (40, 4)].into_iter().enumerate() {
        let result = cuKernelGetParamInfo(first, index, &mut offset, &mut size);
        c.ok(format_args!("parameter {index}"), result);
        c.same("its place", (offset, size), want);
    }
    c.invalid(
        "parameter 4",
        cuKernelGetParamInfo(first, 4, &mut offset, &mut size),
    );
    c.ok(
        "only the offset",
        cuKernelGetParamInfo(first, 0, &mut offset, ptr::null_mut()),
    );
    c.invalid(
        "only the size",
        cuKernelGetParamInfo(first, 0, ptr::null_mut(), &mut size),
    );
}

/// Code that cannot be loaded is an error where it is used, not where the library is loaded.
fn wrong_code(c: &Case) {
    primary(c);
    let header = ".target sm_52\n.address_size 64\n";
    for (text, want) in [
        ("", Code::INVALID_IMAGE),
        ("nonsense", Code::INVALID_IMAGE),
        (
            &format!(".version 7.0\n{header}.visible .entry e() {{ ret;\n"),
            Code::INVALID_PTX,
        ),
        (
            &format!(".version 99.0\n{header}"),
            Code::UNSUPPORTED_PTX_VERSION,
        ),
    ] {
        let library = load(c, text);
        let (mut module, mut kernel) = (CUmodule::NULL, CUkernel::NULL);
        c.expect("its module", cuLibraryGetModule(&mut module, library), want);
        let result = cuLibraryGetKernel(&mut kernel, library, c"e".as_ptr());
        c.expect("its kernel", result, want);
        c.ok("unload", cuLibraryUnload(library));
    }
}

/// Null, and files.
fn errors(c: &Case) {
    primary(c);
    let mut library = CUlibrary(0x77);
    let (null, values) = (ptr::null_mut(), ptr::null_mut());
    let (more, more_values) = (ptr::null_mut(), ptr::null_mut());
    let result = cuLibraryLoadData(
        &mut library,
        ptr::null(),
        null,
        values,
        0,
        more,
        more_values,
        0,
    );
    c.invalid("no code", result);
    c.same("the handle is as it was", library, CUlibrary(0x77));
    let from_file = |library: *mut CUlibrary, path| {
        cuLibraryLoadFromFile(library, path, null, values, 0, more, more_values, 0)
    };
    let result = from_file(&mut library, c"/nope/x.ptx".as_ptr());
    c.expect("a missing file", result, Code::FILE_NOT_FOUND);
    c.invalid("no file", from_file(&mut library, ptr::null()));
    c.invalid(
        "nowhere to write",
        from_file(ptr::null_mut(), c"/nope".as_ptr()),
    );
    let library = load(c, CODE);
    let first = kernel(c, library, c"first");
    let none = CUlibrary::NULL;
    let want = Code::INVALID_HANDLE;
    let (mut kernel, mut count, mut module) = (CUkernel::NULL, 0, CUmodule::NULL);
    let name = c"first".as_ptr();
    c.expect("unload null", cuLibraryUnload(none), want);
    c.expect(
        "kernel of null",
        cuLibraryGetKernel(&mut kernel, none, name),
        want,
    );
    c.expect(
        "count of null",
        cuLibraryGetKernelCount(&mut count, none),
        want,
    );
    c.expect(
        "module of null",
        cuLibraryGetModule(&mut module, none),
        want,
    );
    c.invalid(
        "kernel without a name",
        cuLibraryGetKernel(&mut kernel, library, ptr::null()),
    );
    c.invalid(
        "kernel to null",
        cuLibraryGetKernel(ptr::null_mut(), library, name),
    );
    c.invalid(
        "module to null",
        cuLibraryGetModule(ptr::null_mut(), library),
    );
    let none = CUkernel::NULL;
    let (mut function, mut text, mut of) = (CUfunction::NULL, ptr::null(), CUlibrary::NULL);
    c.expect(
        "function of null",
        cuKernelGetFunction(&mut function, none),
        want,
    );
    c.expect("library of null", cuKernelGetLibrary(&mut of, none), want);
    c.invalid("name of null", cuKernelGetName(&mut text, none));
    c.invalid("name to null", cuKernelGetName(ptr::null_mut(), first));
    c.invalid(
        "function to null",
        cuKernelGetFunction(ptr::null_mut(), first),
    );
    c.invalid(
        "library to null",
        cuKernelGetLibrary(ptr::null_mut(), first),
    );
}
