//! Modules, libraries and linkers: what is live, and the memory of variables. In child processes, whose configuration
//! is their own.

use std::ffi::CString;
use std::ptr;

use crate::common::*;
use cuguard_sys::*;

const CODE: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .global .align 4 .u32 counter = 7;
.visible .entry empty() { ret; }
";

/// A library that was unloaded, and a linker that was destroyed: a real driver crashes.
#[test]
fn dead_libraries_and_linkers_are_misuse() {
    const NAME: &str = "dead_libraries_and_linkers_are_misuse";
    if is_child() {
        context();
        let (mut library, text) = (CUlibrary::NULL, CString::new(CODE).unwrap());
        let (none, values) = (ptr::null_mut(), ptr::null_mut());
        let (more, more_values) = (ptr::null_mut(), ptr::null_mut());
        let code = text.as_ptr().cast();
        ok(cu::cuLibraryLoadData(
            &mut library,
            code,
            none,
            values,
            0,
            more,
            more_values,
            0,
        ));
        assert_eq!(cuguard_sim::counters().libraries, 1);
        ok(cu::cuLibraryUnload(library));
        assert_eq!(cuguard_sim::counters().libraries, 0);
        assert_eq!(cu::cuLibraryUnload(library), CUresult::INVALID_HANDLE);
        let mut linker = CUlinkState::NULL;
        ok(cu::cuLinkCreate_v2(0, none, values, &mut linker));
        assert_eq!(cuguard_sim::counters().linkers, 1);
        ok(cu::cuLinkDestroy(linker));
        assert_eq!(cuguard_sim::counters().linkers, 0);
        assert_eq!(cu::cuLinkDestroy(linker), CUresult::INVALID_HANDLE);
        assert_eq!(cuguard_sim::misuses().len(), 2);
        return;
    }
    let output = child_with(NAME, Some("misuse=error"));
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn code_larger_than_any_memory_is_invalid() {
    const NAME: &str = "code_larger_than_any_memory_is_invalid";
    if is_child() {
        context();
        let (mut linker, text) = (CUlinkState::NULL, CString::new(CODE).unwrap());
        let (none, values) = (ptr::null_mut(), ptr::null_mut());
        ok(cu::cuLinkCreate_v2(0, none, values, &mut linker));
        let code = text.as_ptr().cast_mut().cast();
        let add = |size| cu::cuLinkAddData_v2(linker, 1, code, size, ptr::null(), 0, none, values);
        assert_eq!(add(usize::MAX), CUresult::INVALID_VALUE);
        ok(add(CODE.len()));
        ok(cu::cuLinkDestroy(linker));
        return;
    }
    let output = child_with(NAME, None);
    assert!(output.status.success(), "{output:?}");
}

/// Variables of a module use device memory, and a module that does not fit is not loaded.
#[test]
fn variables_use_device_memory() {
    const NAME: &str = "variables_use_device_memory";
    if is_child() {
        context();
        let before = free_bytes();
        let load = |mib: usize| {
            let bytes = mib << 20;
            let text = format!(
                ".version 7.0\n.target sm_52\n.visible .global .b8 one[4194304];\n.visible .global .b8 two[{bytes}];\n"
            );
            let (mut module, text) = (CUmodule::NULL, CString::new(text).unwrap());
            let result = cu::cuModuleLoadData(&mut module, text.as_ptr().cast());
            (result, module)
        };
        let (result, module) = load(8);
        ok(result);
        assert_eq!(before - free_bytes(), 12 * MIB);
        ok(cu::cuModuleUnload(module));
        assert_eq!(free_bytes(), before);
        assert_eq!(load(64).0, CUresult::OUT_OF_MEMORY);
        assert_eq!(free_bytes(), before);
        let (result, _) = load(8);
        ok(result);
        release();
        context();
        assert_eq!(free_bytes(), before);
        return;
    }
    let output = child_with(NAME, Some("memory=64MiB"));
    assert!(output.status.success(), "{output:?}");
}
