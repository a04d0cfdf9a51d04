//! A program that closes a library whose functions the audit library has found: the library stays loaded.

use crate::support::{assert_success, compile, run, simulated_driver_folder, text};

/// A library with the names of CPython's functions. The interpreter is never initialized.
const PYTHON: &str = "
    #define F(name) int name(void) { return 0; }
    F(Py_IsInitialized) F(_Py_IsFinalizing) F(PyGILState_Check) F(PyGILState_GetThisThreadState)
    F(_PyThreadState_UncheckedGet) F(PyEval_GetFrame) F(PyFrame_GetBack) F(PyFrame_GetCode) F(PyFrame_GetLineNumber)
    F(PyObject_GetAttrString) F(PyUnicode_AsUTF8AndSize) F(Py_IncRef) F(Py_DecRef) F(PyErr_Fetch) F(PyErr_Restore)
    F(PyErr_Clear) F(Py_AddPendingCall) F(PyImport_ImportModule) F(PyCFunction_NewEx) F(PyObject_CallFunctionObjArgs)
    const char *Py_GetVersion(void) { return \"3.11.7\"; }";

const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stddef.h>
    #include <stdio.h>
    int cuInit(unsigned);
    int cuDevicePrimaryCtxRetain(void **, int);
    int cuCtxSetCurrent(void *);
    int cuMemAlloc_v2(unsigned long long *, size_t);
    int cuMemFree_v2(unsigned long long);

    static int pairs(int count) {
        unsigned long long memory;
        for (int i = 0; i < count; i++) {
            int code = cuMemAlloc_v2(&memory, 1000);
            if (!code) code = cuMemFree_v2(memory);
            if (code) return code;
        }
        return 0;
    }

    int main(void) {
        void *context, *python = dlopen("libpretend_python.so", RTLD_NOW | RTLD_GLOBAL);
        if (!python) return 1;
        if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 2;
        if (pairs(20) || dlclose(python) || pairs(20)) return 3;
        /* A lookup that failed in between would leave its message. */
        if (dlerror()) return 4;
        puts("done");
        return 0;
    }"#;

#[test]
fn an_interpreter_that_the_program_closes() {
    let folder = simulated_driver_folder();
    let shared = ["-shared", "-fPIC"];
    if compile(&folder, "libpretend_python.so", PYTHON, &shared).is_none() {
        return;
    }
    let Some(program) = compile(&folder, "program", PROGRAM, &["-l:libcuda.so.1"]) else {
        return;
    };
    let output = run::<&str>(&program, &folder, &[]);
    assert_success(&output);
    assert_eq!(text(&output.stdout), "done\n");
}

/// A thread that looks for an interpreter and finds none leaves no message for `dlerror`.
#[test]
fn a_program_without_an_interpreter_has_no_message() {
    let folder = simulated_driver_folder();
    let source = PROGRAM.replace("libpretend_python.so", "libm.so.6");
    let Some(program) = compile(&folder, "program", &source, &["-l:libcuda.so.1"]) else {
        return;
    };
    let output = run::<&str>(&program, &folder, &[]);
    assert_success(&output);
    assert_eq!(text(&output.stdout), "done\n");
}
