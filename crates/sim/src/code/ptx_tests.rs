//! Tests of the reader of PTX.

use super::*;
use cuguard_sys::CUresult;

fn with_header(text: &str) -> Result<Image, ImageError> {
    read(&format!(
        ".version 7.0\n.target sm_52\n.address_size 64\n{text}"
    ))
}

#[test]
fn parameters_are_placed_as_in_c() {
    let image = with_header(
        ".visible .entry first(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[24],\n\
             .param .u32 d, .param .u64 .ptr .global .align 4 e, .param .v4 .f32 f)\n\
             .maxntid 64, 2, 1\n.minnctapersm 2\n{ ret; }\n",
    )
    .unwrap();
    let kernel = &image.kernels[0];
    let places: Vec<_> = kernel
        .parameters
        .iter()
        .map(|parameter| (parameter.offset, parameter.size))
        .collect();
    assert_eq!(
        places,
        [(0, 1), (8, 8), (16, 24), (40, 4), (48, 8), (64, 16)]
    );
    let addresses = kernel.parameters.iter().map(|own| own.may_be_address);
    assert!(addresses.eq([false, true, false, false, true, false]));
    assert_eq!(kernel.max_threads, Some(128));
    assert_eq!(kernel.parameter_bytes(), 80);
}

#[test]
fn variables_have_sizes_and_values() {
    let image = with_header(
        ".visible .global .align 4 .u32 counter = 7;\n\
             .visible .const .align 4 .b32 table[4] = {1, 2, -1, 0x10};\n\
             .global .f32 half = 0f3F000000, other;\n\
             .visible .global .attribute(.managed) .align 8 .b8 shared_with_host[100];\n\
             .visible .global .f64 matrix[2][2] = {{1.5, 2.5}, {-3.5}};\n\
             .extern .global .u32 elsewhere;\n",
    )
    .unwrap();
    let found: Vec<_> = image
        .variables
        .iter()
        .map(|variable| (variable.name.as_str(), variable.size, variable.value.len()))
        .collect();
    assert_eq!(
        found,
        [
            ("counter", 4, 4),
            ("table", 16, 16),
            ("half", 4, 4),
            ("other", 4, 0),
            ("shared_with_host", 100, 0),
            ("matrix", 32, 24),
        ]
    );
    assert_eq!(image.variables[1].value[8..12], [0xff; 4]);
    assert_eq!(image.variables[2].value, 0.5_f32.to_le_bytes());
    assert_eq!(image.variables[5].value[16..], (-3.5_f64).to_le_bytes());
    assert!(!image.variables[3].is_managed && image.variables[4].is_managed);
}

#[test]
fn shared_memory_is_that_of_the_body() {
    let image = with_header(
            ".shared .align 4 .b8 pool[64];\n.shared .b8 unused[1000];\n\
             .extern .shared .align 16 .b8 dynamic[];\n\
             .visible .entry one() { .shared .align 8 .b8 own[10]; .reg .b32 %r<3>;\n\
             mov.u32 %r1, pool; ld.shared.u32 %r2, [pool]; mov.b64 {%r1, %r2}, 0; st.shared.u32 [dynamic], %r1; ret; }\n\
             .visible .entry two() { ret; }\n",
        )
        .unwrap();
    assert_eq!(image.kernels[0].shared, 76);
    assert_eq!(image.kernels[1].shared, 0);
}

#[test]
fn the_kernels_of_this_repository() {
    for (text, names) in [
        (
            include_str!("../../../../kernels/pattern.ptx"),
            &["fill_pattern", "check_pattern"][..],
        ),
        (include_str!("../../../../kernels/saxpy.ptx"), &["saxpy"]),
        (
            include_str!("../../../../kernels/heap.ptx"),
            &["heap_allocate"],
        ),
        (
            include_str!("../../../../kernels/local.ptx"),
            &["use_local"],
        ),
    ] {
        let image = read(text).unwrap();
        let found: Vec<_> = image
            .kernels
            .iter()
            .map(|k| k.name.to_str().unwrap())
            .collect();
        assert_eq!(found, names);
    }
}

#[test]
fn malformed_text_is_an_error_with_its_line() {
    for text in [
        ".visible .entry e(){ret;\n",
        ".visible .entry e()\n",
        ".visible .entry e(){ret}\n",
        ".visible .entry e(){ret;} /* open\n",
        ".visible .entry e(){ret;}\nhello\n",
        ".visible .entry e(.param .u32 a,.param .u32 a){ret;}\n",
        ".visible .entry e(.param .u33 a){ret;}\n",
        ".visible .entry e(.param .u32 a .param .u32 b){ret;}\n",
        ".visible .entry e(.param .u32 a,){ret;}\n",
        ".visible .entry e(.param .align 3 .b8 a[4]){ret;}\n",
        ".visible .entry e(){ret;}\n.visible .entry e(){ret;}\n",
        ".visible .global .u32 g = {1,2};\n",
    ] {
        let error = with_header(text).unwrap_err();
        assert_eq!(error.code, CUresult::INVALID_PTX, "{text}");
        assert!(error.log.contains(" line "), "{}", error.log);
    }
}

#[test]
fn each_name_of_a_declaration_has_its_own_dimensions_and_value() {
    let image = with_header(
        ".global .u32 a = 1, b = 2;\n\
         .global .align 8 .u16 c[2], d[3][2] = {{1}, {2}}, e, f[] = {1, 2, 3};\n\
         .shared .u64 outer[2], unused;\n\
         .visible .entry k() { .shared .u32 x, y[2]; .reg .b32 %r<3>; mov.u32 %r1, outer; ret; }\n",
    )
    .unwrap();
    let found: Vec<_> = image
        .variables
        .iter()
        .map(|own| (own.name.as_str(), own.size, own.align, &own.value[..]))
        .collect();
    assert_eq!(
        found,
        [
            ("a", 4, 4, &[1, 0, 0, 0][..]),
            ("b", 4, 4, &[2, 0, 0, 0]),
            ("c", 4, 8, &[]),
            ("d", 12, 8, &[1, 0, 2, 0]),
            ("e", 2, 8, &[]),
            ("f", 6, 8, &[1, 0, 2, 0, 3, 0]),
        ]
    );
    // 12 bytes of its own, and 16 aligned to 8.
    assert_eq!(image.kernels[0].shared, 32);
}

#[test]
fn a_pragma_may_precede_a_body() {
    let image = with_header(
        ".visible .entry a(.param .u64 p)\n.maxntid 8\n.pragma \"nounroll\", \"x\";\n{ ret; }\n",
    )
    .unwrap();
    assert_eq!(image.kernels[0].max_threads, Some(8));
}

/// They took more than a minute when the time grew with the square of the length.
#[test]
fn images_with_many_names_are_read() {
    const COUNT: usize = 50_000;
    let of = |text: &dyn Fn(usize) -> String| (0..COUNT).map(text).collect::<String>();
    let shared_value = of(&|_| "1,".to_owned());
    let names = of(&|number| format!(", n{number}"));
    let image = with_header(&format!(
        ".global .b8 a[{COUNT}] = {{{shared_value}}}{names};"
    ));
    assert_eq!(image.unwrap().variables.len(), COUNT + 1);
    let image = with_header(&of(&|number| format!(".global .b8 n{number};\n")));
    assert_eq!(image.unwrap().variables.len(), COUNT);
    let image = with_header(&of(&|number| format!(".entry n{number}() {{ ret; }}\n")));
    assert_eq!(image.unwrap().kernels.len(), COUNT);
    // Parameters of no bytes.
    let parameters = of(&|number| format!(".param .b8 n{number}[],"));
    let error = with_header(&format!(".entry e({parameters}.param .b8 last) {{ ret; }}"));
    assert!(error.unwrap_err().log.contains("space overflowed"));
    let variables = of(&|number| format!(".shared .b8 n{number};\n"));
    let uses = of(&|number| format!("mov.u32 %r1, n{number};\n"));
    let image = with_header(&format!("{variables}.entry e() {{ {uses} }}"));
    assert_eq!(image.unwrap().kernels[0].shared, COUNT);
}
