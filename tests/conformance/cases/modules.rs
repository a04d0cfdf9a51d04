//! Modules: what is found in them by name.

use std::ffi::CStr;
use std::ptr;

use super::functions::attribute;
use super::kernels::{function, load};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"modules":
    functions,
    enumeration,
    variables,
    variable_memory,
    without_context,
    unloaded,
    destroyed_context,
}

/// Kernels with all that a launch checks, and variables of all kinds.
pub(crate) const CODE: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .global .align 8 .b8 table[100];
.global .align 4 .f32 hidden;
.visible .const .align 4 .b32 coefficients[4] = {1, 2, 3, 4};
.visible .func (.param .b32 r) helper(.param .b32 x)
{ .reg .b32 %a; ld.param.b32 %a, [x]; st.param.b32 [r], %a; ret; }
/* .visible .entry in_a_comment() { } */
.visible .entry first(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[24], .param .u32 d)
.maxntid 64, 2, 1
{ ret; }
.visible .entry empty()
{ ret; }
.entry not_visible(.param .u32 x)
{ ret; }
.visible .entry with_shared(.param .u64 p)
{ .shared .align 4 .b8 buffer[2048]; .reg .b64 %p; .reg .b32 %r;
  ld.param.u64 %p, [p]; mov.u32 %r, buffer; st.shared.u32 [%r], %r; st.global.u32 [%p], %r; ret; }
.visible .entry required(.param .u32 x)
.reqntid 32
{ ret; }
.visible .entry two(.param .u64 p, .param .u32 n)
{ .reg .b32 %r; .reg .b64 %p; ld.param.u64 %p, [p]; ld.param.u32 %r, [n]; st.global.u32 [%p], %r; ret; }
.visible .entry uses(.param .u64 p)
{ .reg .f32 %f; .reg .b64 %p; ld.param.u64 %p, [p]; ld.global.f32 %f, [hidden]; st.global.f32 [%p], %f; ret; }
";

/// The kernels in their order.
pub(crate) const KERNELS: [&str; 7] = [
    "first",
    "empty",
    "not_visible",
    "with_shared",
    "required",
    "two",
    "uses",
];

/// Kernels are found by name; device functions, variables and comments are not kernels.
fn functions(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let mut found = CUfunction(0x77);
    let mut get = |name: &CStr| {
        (
            cuModuleGetFunction(&mut found, module, name.as_ptr()),
            found,
        )
    };
    let (result, first) = get(c"first");
    c.ok("a kernel", result);
    c.same_handle("the same handle again", get(c"first").1, first);
    c.ok("a kernel that is not visible", get(c"not_visible").0);
    for name in [c"nope", c"helper", c"counter", c"in_a_comment"] {
        let (result, found) = get(name);
        c.expect(format_args!("{name:?}"), result, Code::NOT_FOUND);
        c.yes("null is written", found.is_null());
    }
    c.invalid("an empty name", get(c"").0);
    let mut found = CUfunction::NULL;
    c.invalid(
        "no name",
        cuModuleGetFunction(&mut found, module, ptr::null()),
    );
    let name = c"first".as_ptr();
    c.invalid(
        "nowhere to write",
        cuModuleGetFunction(ptr::null_mut(), module, name),
    );
    c.expect(
        "no module",
        cuModuleGetFunction(&mut found, CUmodule::NULL, name),
        Code::INVALID_HANDLE,
    );
}

/// A module's functions are counted and listed, in the order of the text.
fn enumeration(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let mut count = 0;
    c.ok("count", cuModuleGetFunctionCount(&mut count, module));
    c.same("functions", count, KERNELS.len() as u32);
    let mut all = [CUfunction::NULL; 20];
    let list = all.as_mut_ptr();
    c.ok("list 20", cuModuleEnumerateFunctions(list, 20, module));
    let names: Vec<_> = all
        .iter()
        .filter(|f| !f.is_null())
        .map(|f| name_of(c, *f))
        .collect();
    c.same("their names", names, KERNELS.map(str::to_owned).to_vec());
    let mut some = [CUfunction::NULL; 20];
    c.ok(
        "list 3",
        cuModuleEnumerateFunctions(some.as_mut_ptr(), 3, module),
    );
    c.same_handle(
        "those are the first 3",
        &some[..4],
        &[all[0], all[1], all[2], CUfunction::NULL],
    );
    c.ok("list 0", cuModuleEnumerateFunctions(list, 0, module));
    c.invalid(
        "list to null",
        cuModuleEnumerateFunctions(ptr::null_mut(), 3, module),
    );
    c.invalid(
        "count to null",
        cuModuleGetFunctionCount(ptr::null_mut(), module),
    );
    let none = CUmodule::NULL;
    let want = Code::INVALID_HANDLE;
    c.expect(
        "count of no module",
        cuModuleGetFunctionCount(&mut count, none),
        want,
    );
    c.expect(
        "list of no module",
        cuModuleEnumerateFunctions(list, 3, none),
        want,
    );
}

pub(crate) fn name_of(c: &Case, function: CUfunction) -> String {
    let mut name = ptr::null();
    c.require("cuFuncGetName", cuFuncGetName(&mut name, function));
    text(name).unwrap_or_default()
}

/// Variables in global and constant memory are found by name, with their sizes.
fn variables(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    for (name, size) in [
        (c"counter", 4),
        (c"table", 100),
        (c"hidden", 4),
        (c"coefficients", 16),
    ] {
        let (mut ptr, mut bytes) = (0, 0);
        let result = cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name.as_ptr());
        c.ok(format_args!("{name:?}"), result);
        c.same("its size", bytes, size);
        c.yes("it has an address", ptr != 0);
    }
    let (mut ptr, mut bytes) = (0, 0);
    let name = c"counter".as_ptr();
    let null = ptr::null_mut();
    let mut get = |name| cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name);
    c.expect(
        "a name that is not there",
        get(c"nope".as_ptr()),
        Code::NOT_FOUND,
    );
    c.invalid("a kernel", get(c"first".as_ptr()));
    c.invalid("an empty name", get(c"".as_ptr()));
    c.invalid("no name", get(ptr::null()));
    let mut bytes = 0;
    c.ok(
        "only the size",
        cuModuleGetGlobal_v2(null, &mut bytes, module, name),
    );
    let (mut ptr, null) = (0, ptr::null_mut());
    c.ok(
        "only the address",
        cuModuleGetGlobal_v2(&mut ptr, null, module, name),
    );
    let nowhere = cuModuleGetGlobal_v2(ptr::null_mut(), ptr::null_mut(), module, name);
    c.invalid("neither", nowhere);
    let result = cuModuleGetGlobal_v2(&mut ptr, &mut bytes, CUmodule::NULL, name);
    c.expect("no module", result, Code::INVALID_HANDLE);
}

fn variable(c: &Case, module: CUmodule, name: &CStr) -> CUdeviceptr {
    let mut ptr = 0;
    let result = cuModuleGetGlobal_v2(&mut ptr, ptr::null_mut(), module, name.as_ptr());
    c.require("cuModuleGetGlobal", result);
    ptr
}

/// A variable is device memory of its own size, with its first value, and is freed with the module alone.
fn variable_memory(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let counter = variable(c, module, c"counter");
    c.same("its first value", read(c, counter, 4), vec![7, 0, 0, 0]);
    write(c, counter, &[1, 2, 3, 4]);
    c.same("what was written", read(c, counter, 4), vec![1, 2, 3, 4]);
    let coefficients = variable(c, module, c"coefficients");
    c.same(
        "constants",
        read(c, coefficients, 8),
        vec![1, 0, 0, 0, 2, 0, 0, 0],
    );
    let table = variable(c, module, c"table");
    let (mut base, mut size) = (0, 0);
    c.ok(
        "its range",
        cuMemGetAddressRange_v2(&mut base, &mut size, table),
    );
    c.same_handle("its range", (base, size), (table, 100));
    let mut bytes = [0_u8; 8];
    let to = bytes.as_mut_ptr().cast();
    c.invalid("a copy past its end", cuMemcpyDtoH_v2(to, counter, 8));
    c.invalid("free it", cuMemFree_v2(counter));
    let other = load(c, CODE);
    c.yes(
        "another module has its own",
        variable(c, other, c"counter") != counter,
    );
    c.ok("unload", cuModuleUnload(module));
    c.invalid("read it then", cuMemcpyDtoH_v2(to, counter, 4));
}

/// A module is loaded into the current context; all else works without one.
fn without_context(c: &Case) {
    start(c);
    let mut module = CUmodule::NULL;
    let want = Code::INVALID_CONTEXT;
    let image = c"nonsense".as_ptr().cast();
    c.expect("load", cuModuleLoadData(&mut module, image), want);
    c.expect(
        "load null",
        cuModuleLoadData(&mut module, ptr::null()),
        want,
    );
    c.expect(
        "load a file",
        cuModuleLoad(&mut module, c"/nope".as_ptr()),
        want,
    );
    c.expect(
        "unload null",
        cuModuleUnload(CUmodule::NULL),
        Code::INVALID_HANDLE,
    );
    let mut mode = 0;
    c.ok("loading mode", cuModuleGetLoadingMode(&mut mode));
    c.same("it is lazy", mode, module_loading_mode::LAZY_LOADING);
    primary(c);
    let module = load(c, CODE);
    c.require("no context", cuCtxSetCurrent(CUcontext::NULL));
    let two = function(c, module, c"two");
    c.yes("a variable", variable(c, module, c"counter") != 0);
    c.same("a name", name_of(c, two), "two".to_owned());
    c.same("an attribute", attribute(c, two, 1), 0);
    c.ok("unload", cuModuleUnload(module));
}

/// Nothing of a module that was unloaded is valid.
fn unloaded(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let two = function(c, module, c"two");
    c.ok("unload", cuModuleUnload(module));
    let want = Code::INVALID_HANDLE;
    c.expect("unload again", cuModuleUnload(module), want);
    c.expect("unload null", cuModuleUnload(CUmodule::NULL), want);
    let (mut found, mut count, mut bytes, mut ptr) = (CUfunction::NULL, 0, 0, 0);
    let name = c"two".as_ptr();
    c.expect(
        "function",
        cuModuleGetFunction(&mut found, module, name),
        want,
    );
    c.expect("count", cuModuleGetFunctionCount(&mut count, module), want);
    let name = c"counter".as_ptr();
    c.expect(
        "variable",
        cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name),
        want,
    );
    let (mut name, mut value, mut of) = (ptr::null(), 0, CUmodule::NULL);
    c.expect("name of a function", cuFuncGetName(&mut name, two), want);
    c.expect(
        "attribute of a function",
        cuFuncGetAttribute(&mut value, 0, two),
        want,
    );
    c.expect("module of a function", cuFuncGetModule(&mut of, two), want);
}

/// Modules end with their context, and can be unloaded while another one is current.
fn destroyed_context(c: &Case) {
    primary(c);
    let kept = load(c, CODE);
    let other = create(c);
    let module = load(c, CODE);
    c.ok("unload in another context", cuModuleUnload(kept));
    c.require("destroy", cuCtxDestroy_v2(other));
    // A real driver returns INVALID_HANDLE or CONTEXT_IS_DESTROYED.
    c.never_success("unload", || cuModuleUnload(module));
}
