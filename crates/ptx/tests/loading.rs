//! What does not load, and what it says.

use cuguard_ptx::Module;

/// The errors of a kernel with a body.
fn errors(body: &str) -> String {
    let text = format!(
        ".version 8.7\n.target sm_90\n.address_size 64\n.entry k()\n{{\n.reg .b32 r<4>; .reg .b64 d<4>; .reg .pred p;\n{body}\n}}"
    );
    match Module::new(&text) {
        Ok(_) => "loaded".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn each_unsupported_instruction_is_named() {
    let found = errors(
        "tcgen05.wait::ld.sync.aligned;\nadd.s32 r0, r1, r2;\ntex.2d.v4.f32.f32 {r0, r1, r2, r3}, [d0, {r0, r1}];\nwgmma.fence.sync.aligned;",
    );
    let expected = "line 7: tcgen05.wait::ld.sync.aligned: not supported\n\
        line 9: tex.2d.v4.f32.f32: not supported\nline 10: wgmma.fence.sync.aligned: not supported";
    assert_eq!(found, expected);
}

#[test]
fn operands_are_checked() {
    for (body, expected) in [
        ("add.s32 r0, r1;", "line 7: add.s32: has 3 operands, not 2"),
        (
            "add.s64 d0, d1, r1;",
            "line 7: add.s64: operand 3 has the wrong type",
        ),
        (
            "add.s32 d0, r1, r1;",
            "line 7: add.s32: operand 1 has the wrong type",
        ),
        ("add.s32 r0, r1, x;", "line 7: add.s32: 'x' is not declared"),
        ("@r0 add.s32 r0, r1, r1;", "line 7: 'r0' is not a predicate"),
        (
            "add.frob.s32 r0, r1, r1;",
            "line 7: add.frob.s32: not supported",
        ),
        ("bra NOWHERE;", "line 7: bra: 'NOWHERE' is not declared"),
        ("bra r0;", "line 7: bra: the target is not a label"),
        (
            "add.s32 r0, r1, r7;",
            "line 7: add.s32: 'r7' is not declared",
        ),
        (
            "A: add.s32 r0, r1, r1;\nA:",
            "line 8: 'A' is declared twice",
        ),
        (".reg .b32 r<4>;", "line 7: 'r' is declared twice"),
        (
            "add.s32 r0, r1, (1 / 0);",
            "line 7: add.s32: division by zero",
        ),
        (".tex .u64 t;", "line 7: .tex: not supported"),
        ("call missing;", "line 7: call: 'missing' is not declared"),
        (
            "add.s32 r0 r1, r1;",
            "line 7: add.s32: expected ';', found 'r1'",
        ),
    ] {
        assert_eq!(errors(body), expected, "{body}");
    }
}

#[test]
fn other_errors() {
    for (text, expected) in [
        ("", "line 1: expected '.version', found the end of the text"),
        (
            ".version 8.0 .target sm_90 .address_size 32",
            "line 1: .address_size 32: not supported",
        ),
        (
            ".version 8.0 .target sm_90\n.entry k() {",
            "line 2: expected '}', found the end of the text",
        ),
        (
            ".version 8.0 .target sm_90\n.global .u32 x; .global .u32 x;",
            "line 2: 'x' is declared twice",
        ),
        (
            ".version 8.0 .target sm_90\n.global .u32 x[99999999999][99999999999];",
            "line 2: the variable 'x' is too large",
        ),
        (
            ".version 8.0 .target sm_90\n.extern .func f(); .entry k() { call f, (); }",
            "line 2: call: 'f' is not defined",
        ),
    ] {
        assert_eq!(
            Module::new(text).unwrap_err().to_string(),
            expected,
            "{text}"
        );
    }
    assert_eq!(
        Module::new(".version 8.0 .target sm_90\n\"").unwrap_err().0[0].line(),
        2
    );
}

#[test]
fn vectors_and_addresses_are_checked() {
    for (body, expected) in [
        (
            "atom.global.add.v2.f32 {f0}, [d0], {f1, f2};",
            "line 7: atom.global.add.v2.f32: an operand has the wrong number of elements",
        ),
        ("mapa.u32 r0, r1, 0;", "line 7: mapa.u32: not supported"),
    ] {
        assert_eq!(
            errors(&format!(".reg .f32 f<4>; {body}")),
            expected,
            "{body}"
        );
    }
}

/// A short text must not need much memory.
#[test]
fn what_fills_up_variables_is_limited() {
    let text = |value: &str| {
        let variables = (0..100).map(|own| format!(".global .b8 a{own}[1][4194304] = {value};\n"));
        format!(
            ".version 8.0 .target sm_90\n{}",
            variables.collect::<String>()
        )
    };
    let module = Module::new(&text("{{1}}")).unwrap();
    assert!(module.variables().all(|own| own.size == 4 << 20));
    assert_eq!(module.initial_value(99, &[0; 100]), [1]);
    let late = text("{{}}").replace("[1][4194304] = {{}}", "[2][2097152] = {{}, {1}}");
    let error = Module::new(&late).unwrap_err().to_string();
    assert!(error.ends_with("too long"), "{error}");
    let open = Module::new(".version 8.0 .target sm_90\n.global .b8 a[] = {1, 0, 0};").unwrap();
    assert_eq!(open.variables().next().unwrap().size, 3);
}
