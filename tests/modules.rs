//! Modules: code on the device, where there is a device that runs code.

#[path = "support/gate.rs"]
mod gate;
mod support;

use std::io::Write;

use cuguard::driver::sys::CUresult;
use cuguard::driver::{self, DriverKind};
use cuguard::nvrtc::{self, Options};
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, Kind, Linker, Module, PinnedBuffer, Result, Stream,
};
use support::*;

const PATTERN: &str = include_str!("../kernels/pattern.ptx");
const SAXPY: &str = include_str!("../kernels/saxpy.ptx");

/// A module with a variable of four numbers, as the kernels of this repository have none.
const TABLE: &str = "
.version 6.4
.target sm_52
.address_size 64
.visible .global .align 4 .u32 table[4] = {1, 2, 3, 4};
.visible .entry nothing() { ret; }
";

/// Whether there is a real GPU; if not, says on standard error that a test was not run.
fn real(test: &str) -> bool {
    let real = driver::load().expect("a driver").kind() == DriverKind::Real;
    if !real {
        // Not by `eprintln!`, which the harness keeps to itself when a test passes.
        let _ = writeln!(std::io::stderr(), "NOT RUN: {test} needs a real GPU");
    }
    real
}

/// The word at an index, as `kernels/README.md` has it.
fn pattern(index: usize, seed: u32) -> u32 {
    (index as u32).wrapping_mul(2654435761) ^ seed
}

#[test]
fn the_simulated_gpu_says_that_it_runs_no_kernels() -> Result<()> {
    let _turn = turn();
    if !simulated("the_simulated_gpu_says_that_it_runs_no_kernels") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, TABLE)?;
    let function = module.function("nothing")?;
    // SAFETY: the kernel takes nothing.
    let error = stream.scope(|s| unsafe { s.launch(&function, (1, 1), &[]) });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::NoKernels { .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "Scope::launch: the simulated GPU runs no kernels; CUGUARD_SIM=kernels=skip checks and skips launches"
    );
    // SAFETY: PTX with a NUL at its end.
    let error = unsafe { Module::from_image(&context, b".version 6.4\0") }.unwrap_err();
    assert!(matches!(error, Error::Compile { .. }), "{error:?}");
    drop((module, stream));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn text_with_a_nul_is_refused_with_the_line_it_is_in() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = Module::from_ptx(&context, "first\nse\0cond\nthird").unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"Module::from_ptx: "se\0cond" has a NUL character in it, at byte 8 of the text"#
    );
    Ok(())
}

/// As compilers and C code leave it there.
#[test]
fn one_nul_at_the_end_of_ptx_is_accepted() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, &format!("{TABLE}\0"))?;
    assert!(module.function("nothing").is_ok());
    let two = Module::from_ptx(&context, &format!("{TABLE}\0\0")).unwrap_err();
    let at = TABLE.len();
    assert!(
        matches!(two, Error::InteriorNul { position, .. } if position == at),
        "{two}"
    );
    Ok(())
}

#[test]
fn a_closed_context_loads_nothing() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, TABLE)?;
    let (function, table) = (module.function("nothing")?, module.global::<u32>("table")?);
    let closed = |result: Result<()>| matches!(result, Err(Error::ContextClosed { .. }));
    context.close()?;
    assert!(closed(module.function("nothing").map(drop)));
    assert!(closed(table.to_vec().map(drop)));
    let launched = stream.scope(|s| {
        // SAFETY: the kernel takes nothing.
        unsafe { s.launch(&function, (1, 1), &[]) }
    });
    assert!(closed(launched));
    assert!(closed(module.close()));
    Ok(())
}

#[test]
fn up_through_a_kernel_and_down_again() -> Result<()> {
    let _turn = turn();
    if !real("up_through_a_kernel_and_down_again") {
        return Ok(());
    }
    const LEN: usize = 1 << 20;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, SAXPY)?;
    let saxpy = module.function("saxpy")?;
    let input: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let ones = PinnedBuffer::from_slice(&context, &[1.0_f32; LEN])?;
    let mut output = PinnedBuffer::<f32>::zeroed(&context, LEN)?;
    let mut x = DeviceBuffer::zeroed(&context, LEN)?;
    let mut y = DeviceBuffer::zeroed_on(&stream, LEN)?;
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
    if !real("kernels_write_and_check_what_is_bound") {
        return Ok(());
    }
    const LEN: usize = 100_000;
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, PATTERN)?.named("pattern");
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
    if !real("a_scope_waits_for_its_kernel_also_when_it_panics") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let module = Module::from_ptx(&context, include_str!("../kernels/spin.ptx"))?;
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
fn a_variable_is_read_and_written() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    let table = module.global::<u32>("table")?;
    assert_eq!((table.len(), table.to_vec()?), (4, vec![1, 2, 3, 4]));
    table.copy_from_slice(&[5, 6, 7, 8])?;
    assert_eq!(
        module.global::<[u32; 2]>("table")?.to_vec()?,
        [[5, 6], [7, 8]]
    );
    let wrong = |result: Result<()>| matches!(result, Err(Error::LengthMismatch { .. }));
    assert!(wrong(table.copy_from_slice(&[1])));
    assert!(wrong(table.copy_to_slice(&mut [0; 5])));
    assert!(wrong(module.global::<[u32; 3]>("table").map(drop)));

    // Parts, and copies on the device.
    table.slice(1..3)?.copy_from_slice(&[60, 70])?;
    assert_eq!(table.to_vec()?, [5, 60, 70, 8]);
    let error = table.slice(3..5).map(drop).unwrap_err();
    assert!(matches!(error, Error::RangeOutOfBounds { .. }), "{error}");
    let stream = Stream::new(&context)?;
    let mut buffers = [
        DeviceBuffer::from_slice(&context, &[1_u32, 2, 3])?,
        DeviceBuffer::from_slice_on(&stream, &[1_u32, 2, 3])?,
    ];
    for buffer in &mut buffers {
        table.slice(..2)?.copy_from(buffer.slice(1..)?)?;
        assert_eq!(table.to_vec()?, [2, 3, 70, 8]);
        table.slice(2..)?.copy_to(buffer.slice_mut(..2)?)?;
        assert_eq!(buffer.to_vec()?, [70, 8, 3]);
        assert!(wrong(table.copy_from(&*buffer)));
        assert!(wrong(table.copy_to(buffer.as_view_mut())));
    }
    Ok(())
}

#[test]
fn names_that_a_module_does_not_have_are_told() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    let error = module.function("saxpi").unwrap_err();
    assert!(matches!(error, Error::NoSuchSymbol { .. }), "{error:?}");
    assert!(error.to_string().contains("\"saxpi\""), "{error}");
    assert!(matches!(
        module.global::<u32>("tabel"),
        Err(Error::NoSuchSymbol { .. })
    ));
    assert!(matches!(
        module.function("a\0b"),
        Err(Error::InteriorNul { .. })
    ));
    Ok(())
}

#[test]
fn what_is_no_ptx_is_refused_with_the_compilers_words() -> Result<()> {
    let _turn = turn();
    if !real("what_is_no_ptx_is_refused_with_the_compilers_words") {
        return Ok(());
    }
    let context = context()?;
    let broken = TABLE.replace("ret;", "rat;");
    let error = Module::from_ptx(&context, &broken).unwrap_err();
    eprintln!("{error}");
    let Error::Compile { log, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(log.contains("line 6") && log.contains("rat"), "{log}");
    assert_eq!(error.code(), Some(CUresult::INVALID_PTX));
    // What looks like a binary is text all the same.
    for text in ["", "hello", "\x7fELF\x02\x01\x01\u{1}"] {
        let error = Module::from_ptx(&context, text).unwrap_err();
        eprintln!("{text:?}: {error}");
        assert!(error.code().is_some(), "{error:?}");
    }
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn a_module_goes_with_its_guard_wherever_that_is_dropped() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let other = Context::builder().dedicated().build()?;
    std::thread::scope(|scope| {
        let load = || Module::from_ptx(&context, TABLE).unwrap();
        let (first, second) = (load(), load());
        scope.spawn(move || drop(first));
        let other = &other;
        scope.spawn(move || {
            let _bound = other.make_current().unwrap();
            drop(second);
        });
    });
    Module::from_ptx(&context, TABLE)?.close()?;
    assert_eq!(context.totals(Kind::Module).count, 0);
    std::mem::forget(Module::from_ptx(&context, TABLE)?.named("lost"));
    let leak = &context.snapshot().live[0];
    assert_eq!(
        (leak.kind, leak.label.as_deref()),
        (Kind::Module, Some("lost"))
    );
    context.close()
}

#[test]
fn the_launch_macro_of_cust_runs_a_kernel() -> Result<()> {
    let _turn = turn();
    if !real("the_launch_macro_of_cust_runs_a_kernel") {
        return Ok(());
    }
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
    const TEST: &str = "a_scope_ends_when_its_kernel_breaks_the_context";
    if !real(TEST) {
        return;
    }
    if part().is_some() {
        let context = context().unwrap();
        let stream = Stream::new(&context).unwrap();
        let module = Module::from_ptx(&context, include_str!("../kernels/fault.ptx")).unwrap();
        let write_to = module.function("write_to").unwrap();
        let buffer = DeviceBuffer::from_slice(&context, &[7_u8; 1000]).unwrap();
        let mut target = PinnedBuffer::<u8>::zeroed(&context, 1000).unwrap();
        let begin = std::time::Instant::now();
        let result = stream.scope(|s| {
            // SAFETY: it is not, on purpose: nobody owns the address. What it breaks is told.
            unsafe { s.launch(&write_to, (1, 1), &[&16_u64])? };
            s.download(&mut s.bind_host_mut(&mut target), &s.bind(&buffer)?)
        });
        assert_eq!(result.unwrap_err().code(), Some(CUresult::ILLEGAL_ADDRESS));
        assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
        // The driver refuses whatever is given back to it. None of it panics.
        drop((buffer, target, module, stream));
        assert!(!context.snapshot().failed_frees.is_empty());
        return;
    }
    succeeded(&child(TEST, "broken", &[]));
}

#[test]
fn a_symbol_of_the_other_kind_is_named() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, TABLE)?;
    assert_eq!(
        module.function("table").unwrap_err().to_string(),
        "Module::function: \"table\" is a variable, not a kernel"
    );
    assert_eq!(
        module.global::<u32>("nothing").unwrap_err().to_string(),
        "Module::global: \"nothing\" is a kernel, not a variable"
    );
    for error in [
        module.function("").unwrap_err(),
        module.global::<u32>("").unwrap_err(),
    ] {
        assert!(matches!(error, Error::NoSuchSymbol { .. }), "{error:?}");
    }
    let nothing = module.function("nothing")?;
    assert_eq!(nothing.name(), "nothing");
    assert_eq!(nothing.module().as_raw(), module.as_raw());
    Ok(())
}

#[test]
fn options_of_the_compiler_are_accepted_or_refused() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let builder = Module::builder(&context)
        .max_registers(32)
        .optimization_level(1)
        .line_info()
        .keep_info_log();
    let module = builder.from_ptx(SAXPY)?;
    assert!(module.function("saxpy").is_ok());
    assert!(module.info_log().is_some());
    let plain = Module::builder(&context).from_ptx(SAXPY)?;
    assert_eq!(plain.info_log(), None);
    let error = builder.optimization_level(9).from_ptx(SAXPY).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ModuleBuilder::from_ptx: the optimization level is 9, which is not within 0 to 4"
    );
    let error = builder
        .from_ptx(&SAXPY.replace(".entry", ".entri"))
        .unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.operation, "ModuleBuilder::from_ptx");
    assert!(log.contains("line "), "{log}");
    // SAFETY: an image without bytes is refused.
    let error = unsafe { Module::from_image(&context, &[]) }.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Module::from_image: there is no device code"
    );
    drop((module, plain));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn modules_are_loaded_from_files() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let name = format!("cuguard-modules-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("table.ptx");
    std::fs::write(&path, TABLE).unwrap();
    assert!(
        Module::from_ptx_file(&context, &path)?
            .function("nothing")
            .is_ok()
    );
    // SAFETY: the file is complete.
    let module = unsafe { Module::from_image_file(&context, &path)? };
    assert_eq!(module.global::<u32>("table")?.to_vec()?, [1, 2, 3, 4]);
    // SAFETY: there is no such file.
    let missing = unsafe { Module::from_image_file(&context, folder.join("none.cubin")) };
    let no_text = folder.join("image.ptx");
    std::fs::write(&no_text, [0xff; 100]).unwrap();
    for (error, file) in [
        (missing.unwrap_err(), "none.cubin"),
        (
            Module::from_ptx_file(&context, folder.join("none.ptx")).unwrap_err(),
            "none.ptx",
        ),
        (
            Module::from_ptx_file(&context, &no_text).unwrap_err(),
            "image.ptx",
        ),
        (
            Module::builder(&context)
                .from_ptx_file(&folder)
                .unwrap_err(),
            "cuguard-modules-",
        ),
        (
            Linker::new(&context)
                .ptx_file(folder.join("none.ptx"))
                .unwrap_err(),
            "none.ptx",
        ),
    ] {
        assert!(matches!(error, Error::File { .. }), "{error:?}");
        assert!(error.to_string().contains(file), "{error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
    Ok(())
}

/// twice(x), and a kernel that calls it.
const TWICE: &str = "
.version 6.4
.target sm_52
.address_size 64
.visible .func (.param .b32 r) twice(.param .b32 x) {
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [x]; add.u32 %r2, %r1, %r1; st.param.b32 [r], %r2; ret;
}
";
const USES_TWICE: &str = "
.version 6.4
.target sm_52
.address_size 64
.extern .func (.param .b32 r) twice(.param .b32 x);
.visible .entry double_it(.param .u64 p) {
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.global.u32 %r1, [%rd2];
    {
        .param .b32 a; st.param.b32 [a], %r1;
        .param .b32 b; call.uni (b), twice, (a);
        ld.param.b32 %r2, [b];
    }
    st.global.u32 [%rd2], %r2; ret;
}
";

#[test]
fn code_of_two_sources_is_linked() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let linker = Linker::new(&context)
        .keep_info_log()
        .ptx("twice.ptx", TWICE)?
        .ptx("uses_twice.ptx", USES_TWICE)?;
    assert_eq!(format!("{linker:?}"), "[\"twice.ptx\", \"uses_twice.ptx\"]");
    let linked = linker.link()?;
    assert!(linked.info_log().is_some());
    assert!(linked.as_bytes().starts_with(b"\x7fELF"));
    let module = linked.load(&context)?;
    // An image for another architecture is not for this device.
    let foreign = linker.clone().target(5, 2).link()?;
    let error = foreign.load(&context).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::NO_BINARY_FOR_GPU), "{error}");
    // The bytes are an image as any other.
    // SAFETY: complete, as the linker made it.
    let again = unsafe { Module::from_image(&context, linked.as_bytes())? };
    assert!(again.function("double_it").is_ok());
    let double = module.function("double_it")?;
    if real("code_of_two_sources_is_linked (the result)") {
        let stream = Stream::new(&context)?;
        let mut number = DeviceBox::new(&context, &21_u32)?;
        stream.scope(|s| {
            let number = s.bind_mut(&mut number)?;
            // SAFETY: double_it(p) doubles one number.
            unsafe { s.launch(&double, (1, 1), &[&number]) }
        })?;
        assert_eq!(number.get()?, 42);
    }
    drop((module, again));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn what_cannot_be_linked_is_refused_with_the_log() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let error = Linker::new(&context).link().unwrap_err();
    assert_eq!(error.to_string(), "Linker::link: there is no device code");
    let twice = Linker::new(&context)
        .ptx("one.ptx", SAXPY)?
        .ptx("two.ptx", SAXPY)?;
    let error = twice.link().unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(error.operation, "Linker::link");
    assert_eq!(
        log,
        "error   : Multiple definition of 'saxpy' in 'two.ptx', first defined in 'one.ptx'"
    );
    // On an H200 this link returned CUDA_ERROR_INVALID_SOURCE; others, of other code and with other options, returned
    // CUDA_ERROR_UNKNOWN, which the simulated driver returns for all.
    let want = match real("what_cannot_be_linked_is_refused_with_the_log (the code)") {
        true => CUresult::INVALID_SOURCE,
        false => CUresult::UNKNOWN,
    };
    assert_eq!(error.code, want);
    let broken = Linker::new(&context).ptx("bad.ptx", ".version 6.4\n.tarket sm_52")?;
    let error = broken.link().unwrap_err();
    let Error::Compile { error, log } = error else {
        panic!("{error:?}");
    };
    assert_eq!(
        (error.operation, error.code),
        ("Linker::link", CUresult::INVALID_PTX)
    );
    assert!(log.contains("line "), "{log}");
    if real("what_cannot_be_linked_is_refused_with_the_log (missing symbols)") {
        let alone = Linker::new(&context).ptx("uses_twice.ptx", USES_TWICE)?;
        let error = alone.link().unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("twice") && text.contains("uses_twice.ptx"),
            "{text}"
        );
    }
    assert_eq!(context.live_count(), 0);
    context.close()?;
    Ok(())
}

/// Each call of the linker fails in turn: nothing stays alive in the driver.
#[test]
fn a_linker_that_fails_leaves_nothing_behind() -> Result<()> {
    use cuguard::sim::{self, Fault};
    let _turn = turn();
    if !simulated("a_linker_that_fails_leaves_nothing_behind") {
        return Ok(());
    }
    let context = context()?;
    let linker = Linker::new(&context).ptx("saxpy.ptx", SAXPY)?;
    for function in ["cuLinkCreate_v2", "cuLinkAddData_v2", "cuLinkComplete"] {
        let calls = || {
            let calls = sim::counters().calls;
            let count = |name: &str| calls.get(name).copied().unwrap_or(0);
            (count("cuLinkCreate_v2"), count("cuLinkDestroy"))
        };
        let (created, destroyed) = calls();
        let fault = Fault::nth_call_of(function, 1).returning(CUresult::UNKNOWN);
        sim::inject(fault).expect("there is such a function");
        assert_eq!(linker.link().unwrap_err().code(), Some(CUresult::UNKNOWN));
        let made = u64::from(function != "cuLinkCreate_v2");
        let (created_now, destroyed_now) = calls();
        assert_eq!(destroyed_now, destroyed + made, "{function}");
        assert_eq!(created_now, created + 1, "{function}");
    }
    linker.link()?.load(&context)?.close()
}

#[test]
fn cuda_is_compiled_and_loaded() -> Result<()> {
    const TEST: &str = "cuda_is_compiled_and_loaded";
    const SOURCE: &str = "
        #include \"add.h\"
        template <class T> __global__ void twice(T *x) { *x = add(*x, *x); }
        extern \"C\" __global__ void add_all(const float *x, float *y, unsigned n) {
            unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) y[i] = add(x[i], y[i]) * FACTOR;
        }
    ";
    let _turn = turn();
    let context = context()?;
    let options = Options::new()
        .name("adds.cu")
        .define_value("FACTOR", "2.0f")
        .header(
            "add.h",
            "template <class T> __device__ T add(T a, T b) { return a + b; }",
        );
    let module = match Module::from_cuda_with(&context, SOURCE, &options) {
        Err(Error::Nvrtc(nvrtc::Error::LibraryMissing { .. })) => {
            let _ = writeln!(std::io::stderr(), "NOT RUN: {TEST} needs NVRTC");
            return Ok(());
        }
        module => module?,
    };
    let add_all = module.function("add_all")?;
    let broken = SOURCE.replace("add(x[i]", "subtract(x[i]");
    let error = Module::from_cuda_with(&context, &broken, &options).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("adds.cu") && text.contains("subtract"),
        "{text}"
    );
    // The symbol name of a template.
    let options = options.arch(9, 0).name_expression("twice<int>");
    let ptx = nvrtc::compile(SOURCE, &options)?;
    let symbol = ptx.lowered_name("twice<int>").expect("it was requested");
    assert!(symbol.starts_with("_Z5twice"), "{symbol}");
    let cubin = nvrtc::compile_to_cubin(SOURCE, &options)?;
    assert!(cubin.as_bytes().starts_with(b"\x7fELF"));
    if real("cuda_is_compiled_and_loaded (the results)") {
        let stream = Stream::new(&context)?;
        let x = DeviceBuffer::from_slice(&context, &[3.0_f32; 1000])?;
        let mut y = DeviceBuffer::from_slice(&context, &[4.0_f32; 1000])?;
        stream.scope(|s| {
            let (x, y) = (s.bind(&x)?, s.bind_mut(&mut y)?);
            // SAFETY: add_all(x, y, n) accesses elements whose index is below `n`.
            unsafe { s.launch(&add_all, (4, 256), &[&x, &y, &1000_u32]) }
        })?;
        assert_eq!(y.to_vec()?, [14.0; 1000]);
    }
    Ok(())
}

/// A program with kernels is tested for leaks without a GPU.
#[test]
fn skipped_kernels_leave_the_leak_report() {
    const TEST: &str = "skipped_kernels_leave_the_leak_report";
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
        std::mem::forget(y.named("lost"));
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
