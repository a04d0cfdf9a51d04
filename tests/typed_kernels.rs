//! Typed kernels: signatures compared with the driver, lengths, safe and unsafe launches.

use crate::support::*;
use cuguard::driver::sys::CUresult;
use cuguard::scope::{Kernel, Len, LenOf, UncheckedKernel, Value};
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, LaunchConfig, Module, Result, Scope, Stream,
};

const LAUNCHES: &str = include_str!("../kernels/launches.ptx");

/// lengths(x, x_count, y, y_count, seen) writes both lengths; shape(struct { u32 a; u64 b; }, seen) writes its fields.
const SMALL: &str = "
.version 6.4
.target sm_52
.address_size 64
.visible .entry lengths(.param .u64 x, .param .u32 xn, .param .u64 y, .param .u64 yn, .param .u64 seen) {
    .reg .b32 %r<2>; .reg .b64 %rd<5>;
    ld.param.u32 %r1, [xn]; cvt.u64.u32 %rd1, %r1; ld.param.u64 %rd2, [yn];
    ld.param.u64 %rd3, [seen]; cvta.to.global.u64 %rd4, %rd3;
    st.global.u64 [%rd4], %rd1; st.global.u64 [%rd4+8], %rd2; ret;
}
.visible .entry shape(.param .align 8 .b8 s[16], .param .u64 seen) {
    .reg .b32 %r<2>; .reg .b64 %rd<5>;
    ld.param.u32 %r1, [s]; cvt.u64.u32 %rd1, %r1; ld.param.u64 %rd2, [s+8];
    ld.param.u64 %rd3, [seen]; cvta.to.global.u64 %rd4, %rd3;
    st.global.u64 [%rd4], %rd1; st.global.u64 [%rd4+8], %rd2; ret;
}
";

type Scale<'a> = (&'a [f32], &'a mut [f32], Len<u32>, f32);

/// # Errors
///
/// If the module has no such kernel.
fn scale(module: &Module) -> Result<Kernel<'_, Scale<'static>>> {
    // SAFETY: scale(input, output, count, factor) accesses `count` elements of each, with any grid.
    unsafe { module.kernel("scale") }
}

/// A kernel in a struct, beside what it works on.
struct Scaler<'module> {
    kernel: Kernel<'module, Scale<'static>>,
    factor: f32,
}

impl<'module> Scaler<'module> {
    fn enqueue<'env>(
        &self,
        s: &Scope<'_, 'env>,
        from: &'env DeviceBuffer<f32>,
        to: &'env mut DeviceBuffer<f32>,
    ) -> Result<()>
    where
        'module: 'env,
    {
        let (from, mut to) = (s.bind(from)?, s.bind_mut(to)?);
        let config = LaunchConfig::for_elements(self.kernel.function(), from.len())?;
        self.kernel
            .launch(s, config, (&from, &mut to, self.factor))?;
        // What was written is read, by a shared borrow of an exclusive binding; the kernel is copied.
        let kernel = self.kernel;
        let (front, mut back) = to.split_at(from.len() / 2)?;
        kernel.launch(s, (3, 64), (&front, &mut back, 1.0))
    }
}

#[test]
fn a_typed_kernel_is_launched_safely() -> Result<()> {
    const COUNT: usize = 10_000;
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, LAUNCHES)?;
    let scaler = Scaler {
        kernel: scale(&module)?,
        factor: 3.0,
    };
    let numbers: Vec<f32> = (0..COUNT).map(|i| i as f32).collect();
    let from = DeviceBuffer::from_slice(&context, &numbers)?;
    let mut to = DeviceBuffer::zeroed(&context, COUNT)?;
    stream.scope(|s| scaler.enqueue(s, &from, &mut to))?;
    let half = numbers[..COUNT / 2].iter().map(|x| x * 3.0);
    let expected: Vec<f32> = half.clone().chain(half).collect();
    assert_eq!(to.to_vec()?, expected);
    assert_eq!(
        format!("{:?}", scaler.kernel),
        "Kernel(scale(&[f32], &mut [f32], Len<u32>, f32))"
    );
    Ok(())
}

#[test]
fn a_signature_that_differs_is_refused_with_both() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, LAUNCHES)?;
    let check = |error: Error, want: &str| {
        assert!(
            matches!(error, Error::SignatureMismatch { .. }),
            "{error:?}"
        );
        assert_eq!(error.to_string(), want);
    };
    let has = "in the module it has 4 parameters of 8, 8, 4, 4 bytes";
    check(
        module
            .kernel_unchecked::<(&[f32], &mut [f32], Len<u64>, f32)>("scale")
            .unwrap_err(),
        &format!(
            "Module::kernel_unchecked: scale is declared with 4 parameters of 8, 8, 8, 4 bytes: \
             (&[f32], &mut [f32], Len<u64>, f32); {has}"
        ),
    );
    check(
        module.kernel_unchecked::<()>("scale").unwrap_err(),
        &format!("Module::kernel_unchecked: scale is declared with no parameters: (); {has}"),
    );
    check(
        module.kernel_unchecked::<(u8,)>("nothing").unwrap_err(),
        "Module::kernel_unchecked: nothing is declared with 1 parameter of size 1: (u8); \
         in the module it has no parameters",
    );
    // SAFETY: never launched.
    let error = unsafe { module.kernel::<(&[f32], &mut [f32], Len<u32>)>("scale") }.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("Module::kernel: scale is declared with 3"),
        "{error}"
    );
    // SAFETY: never launched.
    let error = unsafe { module.kernel::<()>("nothing at all") }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Module::kernel: the module has no symbol \"nothing at all\""
    );
    module.kernel_unchecked::<()>("nothing")?;
    Ok(())
}

#[test]
fn a_driver_that_does_not_know_parameters_compares_none() -> Result<()> {
    let _turn = turn();
    if !simulated("a_driver_that_does_not_know_parameters_compares_none") {
        return Ok(());
    }
    let context = context()?;
    let module = Module::from_ptx(&context, LAUNCHES)?;
    let returning = |code| {
        let fault = Fault::nth_call_of("cuFuncGetParamInfo", 1).returning(code);
        sim::inject(fault).expect("there is such a function");
        module.kernel_unchecked::<(u8,)>("scale").map(drop)
    };
    returning(CUresult::NOT_SUPPORTED)?;
    let error = returning(CUresult::UNKNOWN).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::UNKNOWN));
    Ok(())
}

#[test]
fn lengths_that_differ_are_refused() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, LAUNCHES)?;
    let scale = scale(&module)?;
    let from = DeviceBuffer::from_slice(&context, &[1.0; 10])?;
    let mut to = DeviceBuffer::zeroed(&context, 9)?;
    let error = stream.scope(|s| {
        let (from, mut to) = (s.bind(&from)?, s.bind_mut(&mut to)?);
        scale.launch(s, (1, 32), (&from, &mut to, 1.0))
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "Kernel::launch: parameter 1 has 9 elements, parameter 0 10"
    );
    // Empty slices have a length too.
    let empty = DeviceBuffer::<f32>::zeroed(&context, 0)?;
    let mut none = DeviceBuffer::zeroed(&context, 0)?;
    stream.scope(|s| {
        let (from, mut to) = (s.bind(&empty)?, s.bind_mut(&mut none)?);
        let config = LaunchConfig::for_elements(scale.function(), from.len())?;
        scale.launch(s, config, (&from, &mut to, 1.0))
    })
}

#[test]
fn each_slice_may_have_its_own_length() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, SMALL)?;
    type Lengths<'a> = (
        &'a [u8],
        LenOf<0, u32>,
        &'a mut [u16],
        LenOf<2, usize>,
        &'a mut [u64; 2],
    );
    // SAFETY: lengths(x, x_count, y, y_count, seen) writes two numbers to `seen`, with any grid.
    let lengths: Kernel<'_, Lengths<'_>> = unsafe { module.kernel("lengths")? };
    let x = DeviceBuffer::from_slice(&context, &[1_u8; 300])?;
    let mut y = DeviceBuffer::<u16>::zeroed(&context, 7)?;
    let mut seen = DeviceBox::new(&context, &[0_u64; 2])?;
    stream.scope(|s| {
        let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
        lengths.launch(s, (1, 1), (&x, &mut y, &mut s.bind_mut(&mut seen)?))
    })?;
    assert_eq!(seen.get()?, [300, 7]);
    // A reference is one element.
    let mut two = DeviceBuffer::<[u64; 2]>::zeroed(&context, 2)?;
    let error = stream.scope(|s| {
        let (x, mut y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
        lengths.launch(s, (1, 1), (&x, &mut y, &mut s.bind_mut(&mut two)?))
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "Kernel::launch: parameter 4 has 2 elements, a reference 1"
    );
    Ok(())
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Shape {
    a: u32,
    b: u64,
}
// SAFETY: plain numbers.
unsafe impl cust::memory::DeviceCopy for Shape {}

#[test]
fn a_struct_is_passed_by_value() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, SMALL)?;
    let shape: UncheckedKernel<'_, (Value<Shape>, &mut [u64])> =
        module.kernel_unchecked("shape")?;
    let mut seen = DeviceBuffer::<u64>::zeroed(&context, 2)?;
    stream.scope(|s| {
        let mut seen = s.bind_mut(&mut seen)?;
        // SAFETY: shape(shape, seen) writes two numbers.
        unsafe { shape.launch(s, (1, 1), (Shape { a: 5, b: 1 << 40 }, &mut seen)) }
    })?;
    assert_eq!(seen.to_vec()?, [5, 1 << 40]);
    Ok(())
}

#[test]
fn a_typed_launch_is_checked_as_any_other() -> Result<()> {
    let _turn = turn();
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&one)?;
    let (here, there) = (
        Module::from_ptx(&one, LAUNCHES)?,
        Module::from_ptx(&two, LAUNCHES)?,
    );
    // SAFETY: the kernel accesses nothing.
    let (here, there) = unsafe {
        (
            here.kernel::<()>("nothing")?,
            there.kernel::<()>("nothing")?,
        )
    };
    let error = stream.scope(|s| there.launch(s, (1, 1), ()));
    assert!(
        matches!(error, Err(Error::WrongContext { .. })),
        "{error:?}"
    );
    let error = stream.scope(|s| here.launch(s, (0, 1), ()));
    assert_eq!(
        error.unwrap_err().to_string(),
        "Kernel::launch of nothing: grid.x is 0, which is not within 1 to 2147483647"
    );
    stream.scope(|s| here.launch(s, (1, 1), ()))?;
    one.close()?;
    let error = stream.scope(|s| here.launch(s, (1, 1), ()));
    assert!(
        matches!(error, Err(Error::ContextClosed { .. })),
        "{error:?}"
    );
    Ok(())
}
