//! Arguments, compared with the kernel's parameters.

use cuguard::driver::sys::CUresult;
use cuguard::scope::KernelArgument;
use cuguard::sim::{self, Fault};
use cuguard::{DeviceBox, DeviceBuffer, Error, Module, Result};

use super::{Setup, observed_turn};
use crate::support::*;

#[test]
fn a_kernel_may_have_many_parameters() -> Result<()> {
    const COUNT: usize = 40;
    let _turn = observed_turn();
    let at = Setup::new()?;
    // Adds its numbers up.
    let parameters: Vec<_> = (0..COUNT).map(|i| format!(", .param .u32 p{i}")).collect();
    let adds = (0..COUNT).map(|i| format!("ld.param.u32 %r2, [p{i}]; add.u32 %r1, %r1, %r2;\n"));
    let text = format!(
        ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry many(.param .u64 to{}) {{\n\
         .reg .b32 %r<3>; .reg .b64 %rd<3>; mov.u32 %r1, 0;\n{}\
         ld.param.u64 %rd1, [to]; cvta.to.global.u64 %rd2, %rd1; st.global.u32 [%rd2], %r1; ret; }}",
        parameters.concat(),
        adds.collect::<String>()
    );
    let module = Module::from_ptx(&at.context, &text)?;
    let many = module.function("many")?;
    let numbers: Vec<u32> = (1..=COUNT as u32).collect();
    let mut sum = DeviceBox::new(&at.context, &0_u32)?;
    at.stream.scope(|s| {
        let sum = s.bind_mut(&mut sum)?;
        let first: &dyn KernelArgument<'_> = &sum;
        let rest = numbers.iter().map(|number| number as _);
        let arguments: Vec<_> = std::iter::once(first).chain(rest).collect();
        // SAFETY: many(to, 40 numbers) writes their sum.
        unsafe { s.launch(&many, (1, 1), &arguments) }
    })?;
    assert_eq!(sum.get()?, numbers.iter().sum::<u32>());
    Ok(())
}

#[test]
fn arguments_of_the_wrong_number_or_size_are_refused_with_both() -> Result<()> {
    let _turn = observed_turn();
    let at = Setup::new()?;
    let (nothing, scale) = (at.module.function("nothing")?, at.module.function("scale")?);
    let input = DeviceBuffer::from_slice(&at.context, &[1.0_f32; 100])?;
    let mut output = DeviceBuffer::<f32>::zeroed(&at.context, 100)?;
    at.stream.scope(|s| {
        let (input, output) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        let launch = || {
            // SAFETY: scale(input, output, count, factor) accesses `count` values of each.
            unsafe { s.launch(&scale, (1, 128), &[&input, &output, &100_u32, &2.0_f32]) }
        };
        let refused = |launched: Result<()>, want: &str| {
            let error = launched.unwrap_err();
            assert!(matches!(error, Error::ArgumentMismatch { .. }), "{error:?}");
            assert_eq!(error.to_string(), format!("Scope::launch of {want}"));
        };
        let has = "and has 4 parameters of 8, 8, 4, 4 bytes";
        // The first launch of each kernel, and later ones.
        for _ in 0..2 {
            // SAFETY: launches with these arguments are refused.
            unsafe {
                refused(
                    s.launch(&scale, (1, 128), &[]),
                    &format!("scale: it was passed no arguments, {has}"),
                );
                refused(
                    s.launch(&scale, (1, 128), &[&input, &output, &100_u32]),
                    &format!("scale: it was passed 3 arguments of 8, 8, 4 bytes, {has}"),
                );
                refused(
                    s.launch(&scale, (1, 128), &[&input, &output, &100_u64, &2.0_f32]),
                    &format!("scale: it was passed 4 arguments of 8, 8, 8, 4 bytes, {has}"),
                );
                refused(
                    s.launch(
                        &scale,
                        (1, 128),
                        &[&input, &output, &100_u32, &2.0_f32, &1_u8],
                    ),
                    &format!("scale: it was passed 5 arguments of 8, 8, 4, 4, 1 bytes, {has}"),
                );
                refused(
                    s.launch(&nothing, (1, 128), &[&7_u16]),
                    "nothing: it was passed 1 argument of size 2, and has no parameters",
                );
            }
            launch()?;
        }
        Ok(())
    })?;
    assert_eq!(output.to_vec()?, [2.0; 100]);
    Ok(())
}

/// As with a driver that is older than CUDA 12.4.
#[test]
fn arguments_are_not_compared_where_the_driver_does_not_know_parameters() -> Result<()> {
    let _turn = observed_turn();
    const TEST: &str = "arguments_are_not_compared_where_the_driver_does_not_know_parameters";
    if !simulated(TEST) {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let launch = || {
        // SAFETY: the simulated GPU reads no argument of a kernel that has none.
        at.stream
            .scope(|s| unsafe { s.launch(&nothing, (1, 1), &[&1_u8]) })
    };
    let fault = |code| {
        let fault = Fault::nth_call_of("cuFuncGetParamInfo", 1).returning(code);
        sim::inject(fault).expect("there is such a function")
    };
    let fails = fault(CUresult::UNKNOWN);
    assert_eq!(launch().unwrap_err().code(), Some(CUresult::UNKNOWN));
    assert_eq!(fails.fired(), 1);
    let unknown = fault(CUresult::NOT_SUPPORTED);
    launch()?;
    assert_eq!(unknown.fired(), 1);
    launch()
}
