//! Launches in scopes.

use cuguard::driver::sys::CUresult;
use cuguard::{Context, DeviceBox, DeviceBuffer, Error, Module, PinnedBuffer, Result, Stream};

use super::{SAXPY, TABLE};
use crate::support::*;

/// Code of an H200 alone.
const COMPILED: &[u8] = include_bytes!("../../crates/sim/tests/data/linked.cubin");
const PATTERN: &str = include_str!("../../kernels/pattern.ptx");

/// The word at an index, as `kernels/README.md` has it.
fn pattern(index: usize, seed: u32) -> u32 {
    (index as u32).wrapping_mul(2654435761) ^ seed
}

#[test]
fn the_simulated_gpu_says_that_it_runs_no_compiled_code() -> Result<()> {
    let _turn = turn();
    if !simulated("the_simulated_gpu_says_that_it_runs_no_compiled_code") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    // SAFETY: a complete image, as a linker made it.
    let module = unsafe { Module::from_image(&context, COMPILED)? };
    let function = module.function("empty")?;
    // SAFETY: the kernel takes nothing.
    let error = stream.scope(|s| unsafe { s.launch(&function, (1, 1), &[]) });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::NoKernels { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "Scope::launch: the simulated GPU runs kernels of PTX, and the module is compiled code; CUGUARD_SIM=kernels=skip checks \
         and skips launches"
    );
    // SAFETY: PTX with a NUL at its end.
    let error = unsafe { Module::from_image(&context, b".version 6.4\0") }.unwrap_err();
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    drop((module, stream));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn up_through_a_kernel_and_down_again() -> Result<()> {
    let _turn = turn();
    const LEN: usize = 1 << 20;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, SAXPY)?;
    let saxpy = module.function("saxpy")?;
    let input: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let ones = PinnedBuffer::from_slice(&context, &[1.0_f32; LEN])?;
    let mut output = PinnedBuffer::<f32>::zeroed(&context, LEN)?;
    let mut x = DeviceBuffer::zeroed(&context, LEN)?;
    let mut y = DeviceBuffer::zeroed(&stream, LEN)?;
    stream.scope(|s| {
        let (input, ones) = (s.bind_host(&input), s.bind_host(&ones));
        let mut output = s.bind_host_mut(&mut output);
        let (mut x, mut y) = (s.bind_mut(&mut x)?, s.bind_mut(&mut y)?);
        s.upload(&mut x, &input)?;
        s.upload(&mut y, &ones)?;
        for _ in 0..3 {
            // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
            unsafe { s.launch(&saxpy, (256, 256), &[&2.0_f32, &x, &y, &(LEN as u64)])? };
        }
        s.download(&mut output, &y)
    })?;
    assert!(
        output
            .iter()
            .enumerate()
            .all(|(i, y)| *y == 6.0 * i as f32 + 1.0)
    );
    Ok(())
}

#[test]
fn kernels_write_and_check_what_is_bound() -> Result<()> {
    let _turn = turn();
    const LEN: usize = 100_000;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, PATTERN)?.with_label("pattern");
    let (fill, check) = (
        module.function("fill_pattern")?,
        module.function("check_pattern")?,
    );
    let mut words = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let mut wrong = DeviceBox::new(&context, &0_u64)?;
    stream.scope(|s| {
        let (front, mut back) = s.bind_mut(&mut words)?.split_at(LEN / 2)?;
        let (count, wrong) = (front.len() as u64, s.bind_mut(&mut wrong)?);
        // SAFETY: fill_pattern(words, count, seed) writes `count` words, check_pattern(words,
        // count, seed, mismatches) reads as many and writes one number.
        unsafe {
            s.launch(&fill, ((8, 1, 1), (128, 1)), &[&front, &count, &7_u32])?;
            s.copy(&mut back, &front)?;
            s.launch(&check, (8, 128), &[&back, &count, &7_u32, &wrong])?;
            s.launch(&check, (8, 128), &[&back, &count, &8_u32, &wrong])
        }
    })?;
    assert_eq!(wrong.get()?, (LEN / 2) as u64);
    let words = words.to_vec()?;
    assert!(
        words
            .iter()
            .enumerate()
            .all(|(i, word)| *word == pattern(i % (LEN / 2), 7))
    );
    Ok(())
}

#[test]
fn a_scope_waits_for_its_kernel_also_when_it_panics() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, include_str!("../../kernels/spin.ptx"))?;
    let spin = module.function("spin")?;
    let begin = std::time::Instant::now();
    let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stream.scope(|s| {
            // SAFETY: spin(nanoseconds) touches no memory.
            unsafe { s.launch(&spin, (1, 1), &[&200_000_000_u64])? };
            assert!(!stream.is_idle()?);
            if stream.priority()? == 0 {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
            Ok(())
        })
    }));
    assert!(unwound.is_err());
    assert!(begin.elapsed().as_millis() >= 190 && stream.is_idle()?);
    Ok(())
}

#[test]
fn the_launch_macro_of_cust_runs_a_kernel() -> Result<()> {
    let _turn = turn();
    const LEN: usize = 1000;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, PATTERN)?;
    let fill = module.function("fill_pattern")?;
    let words = DeviceBuffer::<u32>::zeroed(&context, LEN)?;
    let bound = context.make_current()?;
    // SAFETY: fill_pattern(words, count, seed) writes `count` words, which live until it has run.
    unsafe {
        cust::launch!(fill<<<4, 256, 0, stream>>>(words.as_device_ptr(), LEN as u64, 7_u32))?;
    }
    stream.synchronize()?;
    drop(bound);
    let expected: Vec<_> = (0..LEN).map(|index| pattern(index, 7)).collect();
    assert_eq!(words.to_vec()?, expected);
    Ok(())
}

#[test]
fn a_kernel_of_another_context_is_refused() -> Result<()> {
    let _turn = turn();
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let stream = Stream::new(&one)?;
    let module = Module::from_ptx(&two, TABLE)?;
    let function = module.function("nothing")?;
    // SAFETY: the kernel takes nothing.
    let result = stream.scope(|s| unsafe { s.launch(&function, (1, 1), &[]) });
    assert!(
        matches!(result, Err(Error::WrongContext { .. })),
        "{result:?}"
    );
    Ok(())
}

#[test]
fn a_scope_ends_when_its_kernel_breaks_the_context() {
    const TEST: &str = "kernels::a_scope_ends_when_its_kernel_breaks_the_context";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let module = Module::from_ptx(&context, include_str!("../../kernels/fault.ptx")).unwrap();
        let write_to = module.function("write_to").unwrap();
        let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000]).unwrap();
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let result = stream.scope(|s| {
            // SAFETY: it is not, on purpose: nobody owns the address. What it breaks is told.
            unsafe { s.launch(&write_to, (1, 1), &[&16_u64])? };
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        // A scope that retried its wait would abort this process after a while.
        // The driver refuses whatever is given back to it. None of it panics.
        drop((buffer, target, module, stream));
        assert!(!context.snapshot().failed_frees.is_empty());
        return;
    }
    succeeded(&child(TEST, "broken", &[]));
}

/// A program with kernels is tested for leaks without a GPU.
#[test]
fn skipped_kernels_leave_the_leak_report() {
    const TEST: &str = "kernels::skipped_kernels_leave_the_leak_report";
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let module = Module::from_ptx(&context, SAXPY).unwrap();
        let saxpy = module.function("saxpy").unwrap();
        let x = DeviceBuffer::from_slice(&context, &[1.0_f32; 100]).unwrap();
        let mut y = DeviceBuffer::from_slice(&context, &[2.0_f32; 100]).unwrap();
        for _ in 0..2 {
            let launched = stream.scope(|s| {
                let (x, y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
                // SAFETY: saxpy(a, x, y, count) reads `count` values of x and writes as many of y.
                unsafe { s.launch(&saxpy, (1, 128), &[&3.0_f32, &x, &y, &100_u64]) }
            });
            launched.unwrap();
        }
        assert_eq!(y.to_vec().unwrap(), [2.0; 100], "the kernel did not run");
        // SAFETY: saxpy stays within its arguments.
        let refused = stream.scope(|s| unsafe { s.launch(&saxpy, (1, 2048), &[]) });
        let refused = refused.unwrap_err().to_string();
        let expected = "Scope::launch of saxpy: block.x is 2048, which is not within 1 to 1024";
        assert_eq!(refused, expected);
        std::mem::forget(y.with_label("lost"));
        return;
    }
    let output = child(
        TEST,
        "leaks",
        &[
            ("CUGUARD_DRIVER", "sim"),
            ("CUGUARD_SIM", "kernels=skip"),
            ("LEAK_REPORT", "1,exitcode=23"),
        ],
    );
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(23), "{text}");
    assert!(text.contains("leaked 400 B in 1 allocation"), "{text}");
    assert!(text.contains("lost"), "{text}");
    let line =
        "cuguard-sim: kernels=skip: kernel launches are checked and skipped; kernels do not run";
    assert_eq!(text.matches(line).count(), 1, "{text}");
}
