//! The ported programs: they run to their end, and compare their results with the host's.

#![allow(
    clippy::duplicate_mod,
    reason = "each program is a file of its own, with the module that they share"
)]

use cuguard::scope::Len;
use cuguard::{Context, Module, Result};

#[path = "../examples/ported/gemm.rs"]
mod gemm;
#[path = "../examples/ported/launch_kernel.rs"]
mod launch_kernel;
#[path = "../examples/ported/vecadd.rs"]
mod vecadd;

#[test]
fn vecadd_adds() -> Result<()> {
    vecadd::main()
}

#[test]
fn gemm_multiplies() -> Result<()> {
    gemm::main()
}

#[test]
fn launch_kernel_computes_sines() -> Result<()> {
    launch_kernel::main()
}

#[test]
fn kernels_have_the_parameters_that_the_programs_declare() -> Result<()> {
    type Matrices<'a> = (&'a [f32], &'a [f32], &'a mut [f32], u32, u32, u32, f32, f32);
    let context = Context::new(0)?;
    let module = Module::from_ptx(&context, include_str!("../examples/ported/kernels.ptx"))?;
    // SAFETY: never launched.
    unsafe {
        module.kernel::<(&[f32], &[f32], &mut [f32], Len<u64>)>("vecadd")?;
        module.kernel::<(&mut [f32], &[f32], Len<u32>)>("sin_kernel")?;
    }
    module.kernel_unchecked::<Matrices<'_>>("gemm_naive")?;
    module.kernel_unchecked::<Matrices<'_>>("gemm_tiled")?;
    drop(module);
    context.close()
}

/// The lines that docs/ported-programs.md states.
#[test]
fn the_document_counts_lines_correctly() {
    fn lines(text: &str) -> usize {
        let code = text.lines().map(str::trim);
        code.filter(|line| !line.is_empty() && !line.starts_with("//"))
            .count()
    }
    let document = include_str!("../docs/ported-programs.md");
    for (name, text) in [
        ("vecadd", include_str!("../examples/ported/vecadd.rs")),
        ("gemm", include_str!("../examples/ported/gemm.rs")),
        (
            "launch_kernel",
            include_str!("../examples/ported/launch_kernel.rs"),
        ),
    ] {
        let start = format!("| `{name}` |");
        let row = document.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("no row {name}"));
        let after = row.split('|').nth(4).map(str::trim);
        assert_eq!(after, Some(lines(text).to_string().as_str()), "{row}");
    }
    let support = lines(include_str!("../examples/ported/support.rs"));
    assert!(
        document.contains(&format!("`support.rs` ({support} lines)")),
        "{support}"
    );
}
