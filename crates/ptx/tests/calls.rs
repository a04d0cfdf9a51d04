//! Calls: what caller and callee must agree about, and how deep they nest.

use std::fmt::Write;

use cuguard_ptx::{FaultKind, Module};

use crate::common::Argument::U64;
use crate::common::{Device, launch};

const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n";

fn text(functions: &str, body: &str) -> String {
    format!(
        "{HEADER}{functions}\n.visible .entry k(.param .u64 p)\n{{\n.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<4>;\n\
         ld.param.u64 %rd0, [p];\n{body}\nret;\n}}"
    )
}

#[test]
fn parameters_are_compared() {
    let functions = ".func large(.param .b8 a[4096]) { ret; }\n.func (.param .b8 r[64]) result() { ret; }\n\
        .func word(.reg .b32 a) { ret; }\n.func truth(.reg .pred a) { ret; }\n.func small(.param .b32 a) { ret; }";
    for (body, callee) in [
        ("call large, (%rd0);", "large"),
        ("call large, (5);", "large"),
        ("{ .param .b64 a; call large, (a); }", "large"),
        ("call (%rd1), result, ();", "result"),
        ("{ .param .b64 a; call (a), result, (); }", "result"),
        ("call word, (%rd0);", "word"),
        ("call word, (%p0);", "word"),
        ("call truth, (%r0);", "truth"),
        ("{ .param .b64 a; call word, (a); }", "word"),
        ("{ .param .b64 a; call small, (a); }", "small"),
        ("call small, (%p0);", "small"),
    ] {
        let error = Module::new(&text(functions, body)).unwrap_err().to_string();
        assert!(
            error.ends_with(&format!("call: '{callee}' has other parameters")),
            "{body}: {error}"
        );
    }
    let right = "{ .param .b8 a[4096]; call large, (a); } { .param .b8 a[64]; call (a), result, (); }\n\
        call word, (%r0); call word, (7); call truth, (%p0); call small, (%r0); call small, (%rd0);";
    let device = Device::new();
    device
        .launch(&text(functions, right), "k", 1, 32, &[U64(0)])
        .unwrap();
    for parameter in [".reg .b64 a[100]", ".reg .b64 a<3>", ".reg .v2 .b32 a"] {
        let function = format!(".func f({parameter}) {{ ret; }}");
        let error = Module::new(&text(&function, "")).unwrap_err().to_string();
        assert_eq!(
            error, "line 4: the parameter 'a' is not one register",
            "{parameter}"
        );
    }
}

#[test]
fn parameters_of_calls_through_pointers_are_compared() {
    let functions = ".func (.param .b8 r[64]) f(.param .b8 a[4096]) { ret; }";
    for call in [
        "P: .callprototype (.param .b32 _) _ (.param .b8 _[4096]); { .param .b8 a[4096]; call (%r0), %rd1, (a), P; }",
        "P: .callprototype (.param .b8 _[64]) _ (.param .b64 _); { .param .b8 r[64]; call (r), %rd1, (%rd0), P; }",
    ] {
        let body = format!("mov.u64 %rd1, f; {call}");
        let device = Device::new();
        let error = device
            .launch(&text(functions, &body), "k", 1, 32, &[U64(0)])
            .unwrap_err();
        assert!(matches!(error.kind, FaultKind::InvalidTarget(_)), "{error}");
    }
}

/// A frame per call with 64 registers of 64 bits: 512 bytes of local memory of a thread, had the GPU to save them.
#[test]
fn registers_of_callers_are_part_of_the_stack() {
    let mut body = String::new();
    for index in 0..64 {
        writeln!(body, "mov.u64 %d{index}, {index};").unwrap();
    }
    let function = format!(
        ".func f(.param .b32 n) {{ .reg .b64 %d<64>; .reg .b32 %n; .reg .pred %p; ld.param.b32 %n, [n]; {body}\n\
         setp.eq.u32 %p, %n, 0; @%p ret; sub.u32 %n, %n, 1; {{ .param .b32 a; st.param.b32 [a], %n; call f, (a); }} ret; }}"
    );
    let calls = |depth: u32| {
        let device = Device::new();
        let body = format!(
            "{{ .param .b32 a; mov.u32 %r0, {depth}; st.param.b32 [a], %r0; call f, (a); }}"
        );
        device
            .launch(&text(&function, &body), "k", 1, 1, &[U64(0)])
            .map_err(|error| error.kind)
    };
    assert!(calls(500).is_ok());
    assert_eq!(calls(2000), Err(FaultKind::StackOverflow));
}

#[test]
fn frames_are_aligned() {
    let function = ".func f(.param .b64 q) { .local .align 256 .b8 l[256]; .reg .b64 %a; .reg .b64 %b; mov.u64 %a, l;\n\
        cvta.local.u64 %a, %a; ld.param.u64 %b, [q]; st.global.u64 [%b], %a; ret; }";
    let body = ".local .b8 x[8]; { .param .b64 a; st.param.b64 [a], %rd0; call f, (a); }";
    let device = Device::new();
    let to = device.upload(&[0u64]);
    let module = Module::new(&text(function, body)).unwrap();
    device.run(&module, &launch("k", 1, 1), &[U64(to)]).unwrap();
    let [address] = device.read::<u64>(to, 1)[..] else {
        unreachable!()
    };
    assert!(address != 0 && address.is_multiple_of(256), "{address:#x}");
}
