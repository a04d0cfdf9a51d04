//! Launches: configurations, limits, shared memory, cooperative launches and clusters, occupancy. Kernels run on a real GPU;
//! on the simulated one launches are checked and skipped.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;
use std::sync::Once;

use cuguard::driver::sys::CUresult;
use cuguard::scope::KernelArgument;
use cuguard::sim::{self, Fault};
use cuguard::{
    Context, DeviceBox, DeviceBuffer, Error, Function, LaunchConfig, Module, Result, Stream,
};
use support::*;

const LAUNCHES: &str = include_str!("../kernels/launches.ptx");

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller ensures.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller ensures.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A turn, with launches that are checked and skipped where the GPU is simulated.
fn skipping() -> Turn {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let config = sim::Config::new().skip_kernels(true);
        sim::configure(config).expect("it does not run yet");
    });
    turn()
}

struct Setup {
    context: Context,
    stream: Stream,
    module: Module,
}

impl Setup {
    fn new() -> Result<Self> {
        let context = context()?;
        let stream = Stream::new(&context)?;
        let module = Module::from_ptx(&context, LAUNCHES)?;
        Ok(Self {
            context,
            stream,
            module,
        })
    }

    /// Launches a kernel of no arguments.
    fn launch(&self, function: &Function<'_>, config: impl Into<LaunchConfig>) -> Result<()> {
        // SAFETY: `nothing` has no parameters and accesses nothing.
        self.stream
            .scope(|s| unsafe { s.launch(function, config, &[]) })
    }
}

#[test]
fn configurations_are_made_of_numbers_and_tuples() {
    let config = LaunchConfig::new((2, 3), (4, 5, 6)).shared_bytes(7);
    assert_eq!((config.grid(), config.block()), ([2, 3, 1], [4, 5, 6]));
    assert!(!config.is_cooperative() && config.cooperative().is_cooperative());
    assert_eq!(
        LaunchConfig::from(((2, 3), (4, 5, 6))).shared_bytes(7),
        config
    );
    assert_ne!(config.cluster(2), config);
}

#[test]
fn what_no_device_can_launch_is_refused_with_value_and_limit() -> Result<()> {
    let _turn = skipping();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let plain = LaunchConfig::new(1, 1);
    for (config, what) in [
        (
            LaunchConfig::new(0, 1),
            "grid.x is 0, which is not within 1 to 2147483647",
        ),
        (
            LaunchConfig::new((1, 70_000), 1),
            "grid.y is 70000, which is not within 1 to 65535",
        ),
        (
            LaunchConfig::new((1, 1, 0), 1),
            "grid.z is 0, which is not within 1 to 65535",
        ),
        (
            LaunchConfig::new(u32::MAX, 1),
            "grid.x is 4294967295, which is not within 1 to 2147483647",
        ),
        (
            LaunchConfig::new(1, 0),
            "block.x is 0, which is not within 1 to 1024",
        ),
        (
            LaunchConfig::new(1, 2048),
            "block.x is 2048, which is not within 1 to 1024",
        ),
        (
            LaunchConfig::new(1, (1, 1, 65)),
            "block.z is 65, which is not within 1 to 64",
        ),
        (
            LaunchConfig::new(1, (64, 64)),
            "the number of threads per block is 4096, which is not within 1 to 1024",
        ),
        (
            plain.shared_bytes(u32::MAX),
            "the dynamic shared memory in bytes is 4294967295, which is not within 0 to ",
        ),
    ] {
        let error = at.launch(&nothing, config).unwrap_err();
        assert!(matches!(error, Error::OutsideLimits { .. }), "{error:?}");
        let want = format!("Scope::launch of nothing: {what}");
        assert!(error.to_string().starts_with(&want), "{error}\n{want}");
        assert_eq!(error.code(), None);
    }
    // What was refused has broken nothing.
    at.launch(&nothing, (1, 1))?;
    at.launch(&nothing, ((3, 2, 1), (32, 32)))?;
    let Setup {
        context,
        stream,
        module,
    } = at;
    drop((stream, module));
    assert_eq!(context.live_count(), 0);
    Ok(())
}

#[test]
fn a_cooperative_launch_that_does_not_fit_names_what_does() -> Result<()> {
    let _turn = skipping();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let most = nothing.max_cooperative_blocks(1024, 0)?;
    assert!(most >= nothing.max_active_blocks(1024, 0)? && most > 0);
    at.launch(&nothing, LaunchConfig::new(most, 1024).cooperative())?;
    let config = LaunchConfig::new(most + 1, 1024).cooperative();
    let error = at.launch(&nothing, config).unwrap_err();
    let what = "the number of blocks of a cooperative launch";
    let want = Error::OutsideLimits {
        operation: "Scope::launch",
        subject: "nothing".to_owned(),
        what,
        value: u64::from(most) + 1,
        least: 1,
        most: most.into(),
    };
    assert_eq!(error, want);
    Ok(())
}

#[test]
fn a_cluster_that_does_not_fit_names_what_does() -> Result<()> {
    const TEST: &str = "a_cluster_that_does_not_fit_names_what_does";
    let _turn = skipping();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let grid = |cluster: u32| LaunchConfig::new(48, 32).cluster(cluster);
    match at.launch(&nothing, grid(2)) {
        Err(error @ Error::UnsupportedLaunch { .. }) => {
            // Not `eprintln!`, which the test harness captures.
            let _ = writeln!(std::io::stderr(), "NOT RUN: {TEST}: {error}");
            return Ok(());
        }
        launched => launched?,
    }
    at.launch(&nothing, grid(8))?;
    at.launch(&nothing, LaunchConfig::new((4, 4), 32).cluster((2, 2)))?;
    assert_eq!(
        at.launch(&nothing, grid(5)).unwrap_err().to_string(),
        "Scope::launch of nothing: cluster.x is 5, which does not divide the grid's 48 blocks"
    );
    assert_eq!(
        at.launch(&nothing, grid(0)).unwrap_err().to_string(),
        "Scope::launch of nothing: cluster.x is 0, which is not within 1 to 48"
    );
    let error = at.launch(&nothing, grid(16)).unwrap_err().to_string();
    let want = "Scope::launch of nothing: the number of blocks per cluster is 16, which is not within 1 to 8";
    assert_eq!(error, want);
    assert!(nothing.max_active_clusters(&grid(8))? > 0);
    nothing.allow_non_portable_clusters()?;
    assert_eq!(nothing.max_cluster_blocks(&grid(8))?, 16);
    // The cluster of the configuration does not count, its other numbers do.
    assert_eq!(nothing.max_cluster_blocks(&grid(0))?, 16);
    for (config, what) in [
        (LaunchConfig::new(0, 32), "grid.x is 0"),
        (LaunchConfig::new(1, 0), "block.x is 0"),
        (LaunchConfig::new(1, (32, 0)), "block.y is 0"),
        (LaunchConfig::new(1, 1025), "block.x is 1025"),
    ] {
        let error = nothing.max_cluster_blocks(&config).unwrap_err();
        let want = format!("Function::max_cluster_blocks of nothing: {what}, which is not within");
        assert!(error.to_string().starts_with(&want), "{error}");
    }
    at.launch(&nothing, grid(16))
}

/// How often the simulated driver was called for what a launch could ask.
fn queries() -> Vec<(&'static str, u64)> {
    let counters = sim::counters();
    let calls = counters.calls.iter().filter(|(name, _)| {
        name.starts_with("cuFunc")
            || name.starts_with("cuDeviceGet")
            || name.starts_with("cuOccupancy")
    });
    let mut calls: Vec<_> = calls.map(|(name, count)| (*name, *count)).collect();
    calls.sort_unstable();
    calls
}

#[test]
fn a_launch_queries_nothing_after_the_first() -> Result<()> {
    let _turn = skipping();
    if !simulated("a_launch_queries_nothing_after_the_first") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let before = queries();
    at.launch(&nothing, (1, 1))?;
    assert_ne!(queries(), before, "the first launch reads the limits");
    let before = queries();
    // The same kernel, looked up again.
    let again = at.module.function("nothing")?;
    for _ in 0..10 {
        at.launch(&nothing, (1, 1))?;
        at.launch(
            &again,
            LaunchConfig::new(2, 2).shared_bytes(48 << 10).cooperative(),
        )?;
    }
    assert_eq!(queries(), before);
    let first = LaunchConfig::for_elements(&nothing, 1000)?;
    let before = queries();
    assert_eq!(LaunchConfig::for_elements(&again, 1000)?, first);
    assert_eq!(queries(), before);
    Ok(())
}

#[test]
fn large_shared_memory_is_allowed_once() -> Result<()> {
    let _turn = skipping();
    if !simulated("large_shared_memory_is_allowed_once") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let calls = || {
        let calls = sim::counters().calls;
        calls.get("cuFuncSetAttribute").copied().unwrap_or(0)
    };
    let launch = |bytes| at.launch(&nothing, LaunchConfig::new(1, 32).shared_bytes(bytes));
    launch(48 << 10)?;
    let before = calls();
    for bytes in [64 << 10, 64 << 10, 50_000, 64 << 10] {
        launch(bytes)?;
    }
    assert_eq!(calls(), before + 1);
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, 64 << 10);
    launch(100_000)?;
    launch(64 << 10)?;
    assert_eq!(calls(), before + 2);
    // A failure is not remembered as a success.
    let fault = Fault::nth_call_of("cuFuncSetAttribute", 1).returning(CUresult::UNKNOWN);
    let fault = sim::inject(fault).expect("there is such a function");
    assert_eq!(launch(120_000).unwrap_err().code(), Some(CUresult::UNKNOWN));
    assert_eq!(fault.fired(), 1);
    launch(120_000)?;
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, 120_000);
    Ok(())
}

/// Reading the limits loads the kernel's code, which may need memory: callbacks help there too.
#[test]
fn the_first_launch_recovers_where_its_limits_cannot_be_read() -> Result<()> {
    let _turn = skipping();
    if !simulated("the_first_launch_recovers_where_its_limits_cannot_be_read") {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let callback = at.context.release_on_oom(|_| ());
    let fault = Fault::nth_call_of("cuFuncGetAttribute", 1).returning(CUresult::OUT_OF_MEMORY);
    let fault = sim::inject(fault).expect("there is such a function");
    at.launch(&nothing, (1, 1))?;
    assert_eq!(fault.fired(), 1);
    drop(callback);
    Ok(())
}

#[test]
fn a_launch_allocates_nothing_on_the_host() -> Result<()> {
    let _turn = skipping();
    // The simulated driver is in this process, and allocates.
    if !real("a_launch_allocates_nothing_on_the_host") {
        return Ok(());
    }
    let at = Setup::new()?;
    let scale = at.module.function("scale")?;
    let input = DeviceBuffer::from_slice(&at.context, &[1.0_f32; 100])?;
    let mut output = DeviceBuffer::<f32>::zeroed(&at.context, 100)?;
    at.stream.scope(|s| {
        let (input, output) = (s.bind(&input)?, s.bind_mut(&mut output)?);
        let launch = || {
            // SAFETY: scale(input, output, count, factor) accesses `count` values of each.
            unsafe { s.launch(&scale, (1, 128), &[&input, &output, &100_u32, &2.0_f32]) }
        };
        launch()?;
        let before = ALLOCATIONS.get();
        for _ in 0..100 {
            launch()?;
        }
        assert_eq!(ALLOCATIONS.get(), before);
        Ok(())
    })?;
    assert_eq!(output.to_vec()?, [2.0; 100]);
    Ok(())
}

#[test]
fn a_kernel_may_have_many_parameters() -> Result<()> {
    const COUNT: usize = 40;
    let _turn = skipping();
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
    if real("a_kernel_may_have_many_parameters (the sum)") {
        assert_eq!(sum.get()?, numbers.iter().sum::<u32>());
    }
    Ok(())
}

#[test]
fn arguments_of_the_wrong_number_or_size_are_refused_with_both() -> Result<()> {
    let _turn = skipping();
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
    if real("arguments_of_the_wrong_number_or_size_are_refused_with_both (the values)") {
        assert_eq!(output.to_vec()?, [2.0; 100]);
    }
    Ok(())
}

/// As with a driver that is older than CUDA 12.4.
#[test]
fn arguments_are_not_compared_where_the_driver_does_not_know_parameters() -> Result<()> {
    let _turn = skipping();
    const TEST: &str = "arguments_are_not_compared_where_the_driver_does_not_know_parameters";
    if !simulated(TEST) {
        return Ok(());
    }
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    let launch = || {
        // SAFETY: the simulated GPU runs no kernels, and reads no argument of a kernel that has none.
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

#[test]
fn elements_are_covered_by_whole_blocks() -> Result<()> {
    let _turn = skipping();
    let at = Setup::new()?;
    let scale = at.module.function("scale")?;
    let suggested = scale.suggested_block_size(0)?;
    assert!(suggested.threads > 0 && suggested.min_grid > 0);
    let threads = suggested.threads as usize;
    for (count, blocks) in [
        (0, 1),
        (1, 1),
        (threads, 1),
        (threads + 1, 2),
        (1 << 30, (1_usize << 30).div_ceil(threads)),
    ] {
        let config = LaunchConfig::for_elements(&scale, count)?;
        assert_eq!(config.grid(), [blocks as u32, 1, 1], "{count} elements");
        assert_eq!(config.block(), [suggested.threads, 1, 1]);
    }
    let most = (1 << 31) - 1;
    let largest = LaunchConfig::for_elements(&scale, threads * most)?;
    assert_eq!(largest.grid(), [most as u32, 1, 1]);
    for count in [threads * most + 1, threads << 32, usize::MAX] {
        let error = LaunchConfig::for_elements(&scale, count).unwrap_err();
        let blocks = count.div_ceil(threads);
        assert_eq!(
            error.to_string(),
            format!(
                "LaunchConfig::for_elements of scale: grid.x is {blocks}, which is not within 1 to {most}"
            )
        );
    }
    Ok(())
}

#[test]
fn occupancy_falls_with_threads_and_shared_memory() -> Result<()> {
    let _turn = skipping();
    let at = Setup::new()?;
    let tiles = at.module.function("reverse_tiles")?;
    let attributes = tiles.attributes()?;
    assert_eq!(attributes.max_threads_per_block, 1024);
    assert_eq!((attributes.shared_bytes, attributes.local_bytes), (0, 0));
    assert_eq!(attributes.ptx_version, (5, 2));
    let blocks = |threads, shared| tiles.max_active_blocks(threads, shared);
    assert!(blocks(128, 0)? > blocks(1024, 0)?);
    assert!(blocks(128, 0)? > blocks(128, 64 << 10)? && blocks(128, 64 << 10)? > 0);
    // As much as is available, fits; and it is available without a launch that allowed it.
    let fresh = Module::from_ptx(&at.context, LAUNCHES)?;
    let tiles = fresh.function("reverse_tiles")?;
    let bytes = tiles.available_shared_bytes(2, 256)?;
    assert!(bytes > 48 << 10, "{bytes}");
    for blocks in [1, 2, 5, 7, 8] {
        let bytes = tiles.available_shared_bytes(blocks, 256)?;
        assert!(
            tiles.max_active_blocks(256, bytes)? >= blocks,
            "{blocks}: {bytes}"
        );
    }
    let error = tiles.max_active_blocks(0, 0).unwrap_err();
    assert!(matches!(error, Error::OutsideLimits { .. }), "{error}");
    let most = tiles.max_active_blocks(32, 0)?;
    for blocks in [0, most + 1, u32::MAX] {
        let error = tiles.available_shared_bytes(blocks, 32).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "Function::available_shared_bytes of reverse_tiles: the number of blocks per multiprocessor is \
                 {blocks}, which is not within 1 to {most}"
            )
        );
    }
    let Setup { context, .. } = at;
    context.close()?;
    assert!(matches!(
        tiles.attributes().unwrap_err(),
        Error::ContextClosed { .. }
    ));
    assert!(matches!(
        tiles.available_shared_bytes(1, 32).unwrap_err(),
        Error::ContextClosed { .. }
    ));
    Ok(())
}

#[test]
fn tiles_are_reversed_in_large_shared_memory() -> Result<()> {
    const TILE: usize = 16_384;
    const TILES: usize = 33;
    let _turn = skipping();
    let at = Setup::new()?;
    let reverse = at.module.function("reverse_tiles")?;
    let words: Vec<u32> = (0..(TILE * TILES) as u32).collect();
    let mut buffer = DeviceBuffer::from_slice(&at.context, &words)?;
    let config = LaunchConfig::new(16, 1024).shared_bytes(64 << 10);
    at.stream.scope(|s| {
        let words = s.bind_mut(&mut buffer)?;
        // SAFETY: reverse_tiles(words, tiles) accesses `tiles` tiles of 16384 words, and has shared memory for one.
        unsafe { s.launch(&reverse, config, &[&words, &(TILES as u32)]) }
    })?;
    if real("tiles_are_reversed_in_large_shared_memory (the words)") {
        let mut words = words;
        words.chunks_mut(TILE).for_each(<[u32]>::reverse);
        assert!(buffer.to_vec()? == words);
    }
    Ok(())
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() -> Result<()> {
    const COUNT: usize = 1_000_000;
    let _turn = skipping();
    let at = Setup::new()?;
    let sum = at.module.function("sum_everywhere")?;
    let blocks = sum.max_cooperative_blocks(256, 0)?;
    let words: Vec<u32> = (0..COUNT as u32)
        .map(|i| i.wrapping_mul(2_654_435_761))
        .collect();
    let buffer = DeviceBuffer::from_slice(&at.context, &words)?;
    let mut partial = DeviceBuffer::<u32>::zeroed(&at.context, blocks as usize)?;
    let mut arrived = DeviceBox::new(&at.context, &0_u32)?;
    let mut sums = DeviceBuffer::<u32>::zeroed(&at.context, blocks as usize)?;
    let config = LaunchConfig::new(blocks, 256).cooperative();
    at.stream.scope(|s| {
        let (words, partial) = (s.bind(&buffer)?, s.bind_mut(&mut partial)?);
        let (arrived, sums) = (s.bind_mut(&mut arrived)?, s.bind_mut(&mut sums)?);
        let arguments: [&dyn KernelArgument<'_>; 5] =
            [&words, &(COUNT as u32), &partial, &arrived, &sums];
        // SAFETY: sum_everywhere(words, count, partial, arrived, sums) reads `count` words and accesses an element of the
        // others for each block.
        unsafe { s.launch(&sum, config, &arguments) }
    })?;
    if real("blocks_of_a_cooperative_launch_wait_for_each_other (the sums)") {
        let expected = words
            .iter()
            .fold(0_u32, |sum, word| sum.wrapping_add(*word));
        assert_eq!(sums.to_vec()?, vec![expected; blocks as usize]);
        assert_eq!(arrived.get()?, blocks);
    }
    Ok(())
}

/// Launches of one kernel on several threads, which need different amounts of shared memory.
#[test]
fn threads_share_the_allowance_of_a_kernel() -> Result<()> {
    let _turn = skipping();
    let at = Setup::new()?;
    let nothing = at.module.function("nothing")?;
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let (context, nothing) = (&at.context, &nothing);
            scope.spawn(move || {
                let stream = Stream::new(context).unwrap();
                for round in 0..50 {
                    let bytes = (48 << 10) + (round * 4 + thread) * 16;
                    let config = LaunchConfig::new(1, 32).shared_bytes(bytes);
                    // SAFETY: the kernel has no parameters and accesses nothing.
                    let launched = stream.scope(|s| unsafe { s.launch(nothing, config, &[]) });
                    launched.unwrap();
                }
            });
        }
    });
    let most = (48 << 10) + (49 * 4 + 3) * 16;
    assert_eq!(nothing.attributes()?.max_dynamic_shared_bytes, most);
    Ok(())
}
