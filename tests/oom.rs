//! Out of memory: the causes and their numbers. All of it on the simulated GPU, where causes can be
//! staged at will; `tests/oom_real.rs` stages some on a real one.

use crate::support::room::*;
use crate::support::*;
use cuguard::oom::{Cause, OomPolicy, OutOfMemory, Processes};
use cuguard::sim::{self, OtherProcess};
use cuguard::{
    Context, DeviceBuffer, DriverPool, Error, Pool, ResourceKind, Result, Stream, TrackingLevel,
};

fn names(why: &OutOfMemory) -> Vec<&'static str> {
    why.causes().iter().map(Cause::name).collect()
}

#[test]
fn more_than_the_device_has() -> Result<()> {
    let turn = turn();
    if !simulated("more_than_the_device_has") {
        return Ok(());
    }
    let context = context()?;
    let total = context.memory()?.total;
    let why = why(take(&context, total as usize + 1));
    let cause = Cause::LargerThanDevice {
        request: total + 1,
        total,
    };
    assert_eq!(why.causes(), [cause]);
    assert_eq!(why.request.bytes, Some(total + 1));
    assert_eq!(why.request.operation, "DeviceBuffer::uninitialized");
    assert_eq!(why.request.kind, Some(ResourceKind::Device));
    let site = why.request.site.expect("a line");
    assert!(site.file.ends_with("oom.rs"), "{site}");
    let text = why.to_text();
    assert!(
        text.contains("why: larger than the device, which has 4 GiB"),
        "{text}"
    );
    assert!(text.contains("cuguard::Chunked"), "{text}");
    // All of it is too much too, as contexts take some.
    let free = context.memory()?.free;
    let why = self::why(take(&context, total as usize));
    let bytes = total - free;
    assert_eq!(why.causes(), [Cause::OutsideGuards { bytes }], "{why:#}");
    let text = why.to_text();
    assert!(text.contains("a context itself takes"), "{text}");
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_programs_own_data_with_the_line_that_grows() -> Result<()> {
    let turn = turn();
    if !simulated("the_programs_own_data_with_the_line_that_grows") {
        return Ok(());
    }
    let context = context()?;
    let weights = take(&context, GIB)?.with_label("weights");
    let mut kept = Vec::new();
    let why = loop {
        match take(&context, 128 * MIB) {
            Ok(buffer) => kept.push(buffer),
            Err(Error::OutOfMemory(why)) => break *why,
            Err(error) => return Err(error),
        }
        if kept.len() == 2 {
            context.mark_oom_baseline();
        }
    };
    let held = (GIB + kept.len() * 128 * MIB) as u64;
    let cause = Cause::OwnData {
        bytes: held,
        grows: true,
    };
    assert_eq!(why.causes(), [cause]);
    assert_eq!(why.usage[0].amount.bytes, held);
    assert_eq!(why.call_sites.len(), 2);
    assert_eq!(
        why.call_sites[0].growth,
        Some(((kept.len() - 2) * 128 * MIB) as i64)
    );
    assert!(why.call_sites[0].grows() && !why.call_sites[1].grows());
    assert_eq!(why.call_sites[1].group.label.as_deref(), Some("weights"));
    let memory = context.memory()?;
    assert_eq!(
        (why.free, why.total),
        (Some(memory.free), Some(memory.total))
    );
    let text = why.to_text();
    assert!(
        text.contains("and grows") && text.contains("since the baseline"),
        "{text}"
    );
    // A checkpoint was made, so nobody is told to make one.
    assert!(!text.contains("Context::mark_oom_baseline()"), "{text}");
    drop((weights, kept, context));
    turn.all_came_back();
    Ok(())
}

/// Blocks that are made all through the life of a context betray themselves without a checkpoint.
#[test]
fn growth_is_seen_without_a_checkpoint() -> Result<()> {
    let turn = turn();
    if !simulated("growth_is_seen_without_a_checkpoint") {
        return Ok(());
    }
    // Where the machine stands still for a while, the blocks are not made evenly: then once more, and
    // slower.
    let mut seen = false;
    for pause in [2, 10, 40, 100] {
        let context = context()?;
        let once = take(&context, GIB)?;
        let mut kept = Vec::new();
        let why = loop {
            // A buffer that comes and goes with each step is not the one that grows.
            drop(take(&context, MIB));
            match take(&context, 64 * MIB) {
                Ok(buffer) => kept.push(buffer),
                Err(Error::OutOfMemory(why)) => break *why,
                Err(error) => return Err(error),
            }
            std::thread::sleep(std::time::Duration::from_millis(pause));
        };
        let growing: Vec<_> = why
            .call_sites
            .iter()
            .filter(|holder| holder.grows())
            .collect();
        let count = growing.first().map(|holder| holder.group.amount.count);
        seen = matches!(why.causes()[..], [Cause::OwnData { grows: true, .. }])
            && growing.len() == 1
            && count == Some(kept.len() as u64);
        drop((once, kept, context));
        if seen {
            break;
        }
    }
    assert!(seen, "nothing was seen to grow");
    turn.all_came_back();
    Ok(())
}

#[test]
fn pages_that_small_blocks_keep() -> Result<()> {
    let turn = turn();
    if !simulated("pages_that_small_blocks_keep") {
        return Ok(());
    }
    let context = context()?;
    let data = leave(&context, 512 * MIB)?;
    let mut blocks = Vec::new();
    while let Ok(block) = take(&context, MIB) {
        blocks.push(block);
    }
    let all = blocks.len() as u64;
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    let why = why(take(&context, 200 * MIB));
    let pages = all / 2;
    // Side by side the blocks would need half of the pages.
    let cause = Cause::Fragmentation {
        bytes: (pages - (blocks.len() as u64).div_ceil(2)) * PAGE,
        pages,
    };
    assert_eq!(why.causes(), [cause], "{why:#}");
    let use_of_pages = why.pages.expect("all blocks have records");
    assert_eq!(use_of_pages.taken(), data.len() as u64 + pages * PAGE);
    let pinning = why.call_sites.iter().find(|holder| holder.small_pages != 0);
    assert_eq!(pinning.expect("a place").small_pages, pages);
    // A small block still finds room.
    blocks.push(DeviceBuffer::zeroed(&context, MIB)?);
    drop((data, blocks, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_pool_that_keeps_what_it_does_not_use() -> Result<()> {
    let turn = turn();
    if !simulated("a_pool_that_keeps_what_it_does_not_use") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = DriverPool::new(&context)?.with_label("frames");
    let data = leave(&context, 512 * MIB)?;
    let mut blocks = Vec::new();
    while let Ok(block) = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3 * MIB) {
        blocks.push(block);
    }
    let mut index = 0;
    blocks.retain(|_| {
        index += 1;
        index % 2 == 0
    });
    stream.synchronize()?;
    // From another thread, which has other lists of its own.
    let why = std::thread::scope(|scope| {
        let asking = scope.spawn(|| why(take(&context, 200 * MIB)));
        asking.join().expect("no panic")
    });
    let (reserved, used) = (pool.reserved_bytes()?, pool.used_bytes()?);
    assert_eq!(used, blocks.len() as u64 * 3 * MIB as u64);
    let bytes = reserved - used;
    assert_eq!(why.causes(), [Cause::HoardedByPools { bytes }], "{why:#}");
    assert_eq!((why.pools[0].reserved, why.pools[0].used), (reserved, used));
    assert!(why.to_text().contains("frames"), "{why:#}");
    drop((data, blocks, pool, stream, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn another_process_is_named() -> Result<()> {
    let turn = turn();
    if !simulated("another_process_is_named") {
        return Ok(());
    }
    let holder = OtherProcess::new(4711, "python train.py", 3 * GIB as u64);
    sim::set_other_processes(0, [holder]).expect("there is as much");
    let context = context()?;
    let why = why(take(&context, 2 * GIB));
    let cause = Cause::OtherProcesses {
        bytes: 3 * GIB as u64,
        pids: vec![4711],
    };
    assert_eq!(why.causes(), [cause], "{why:#}");
    let text = why.to_text();
    assert!(text.contains("pid 4711, python train.py"), "{text}");
    // Where nobody is asked, nothing is guessed.
    let quiet = OomPolicy::new().ask_processes(false);
    let second = Context::builder().oom_policy(quiet).build()?;
    let why = self::why(take(&second, 2 * GIB));
    assert!(matches!(why.processes, Processes::Unknown(_)));
    assert_eq!(names(&why), ["unexplained"], "{why:#}");
    drop((context, second));
    sim::set_other_processes(0, []).expect("none");
    turn.all_came_back();
    Ok(())
}

/// No context can be made where another process has all the memory, and the error says so.
#[test]
fn a_context_that_does_not_fit() {
    let _turn = turn();
    if !simulated("a_context_that_does_not_fit") {
        return;
    }
    let holder = OtherProcess::new(4712, "other", free_bytes() - 4 * PAGE);
    sim::set_other_processes(0, [holder]).expect("there is as much");
    let why = why(Context::builder().dedicated().build());
    sim::set_other_processes(0, []).expect("none");
    assert_eq!(names(&why), ["other_processes"], "{why:#}");
    assert_eq!((why.request.bytes, why.total), (None, Some(4 * GIB as u64)));
    assert_eq!(why.request.operation, "ContextBuilder::build");
    // There is no context yet that it could be in.
    let head = "ContextBuilder::build requested memory on device 0, cuguard simulated GPU\n";
    assert!(why.to_text().contains(head), "{why:#}");
}

/// Two causes at once: both are named, the larger first, whichever it is.
#[test]
fn two_causes_are_both_named_the_larger_first() -> Result<()> {
    let turn = turn();
    if !simulated("two_causes_are_both_named_the_larger_first") {
        return Ok(());
    }
    for (others, small, order) in [
        (2048, 512, ["other_processes", "fragmentation"]),
        (300, 2048, ["fragmentation", "other_processes"]),
    ] {
        let holder = OtherProcess::new(4713, "other", (others * MIB) as u64);
        sim::set_other_processes(0, [holder]).expect("there is as much");
        let context = context()?;
        let data = leave(&context, small * MIB)?;
        let mut blocks = Vec::new();
        while let Ok(block) = take(&context, MIB) {
            blocks.push(block);
        }
        let mut index = 0;
        blocks.retain(|_| {
            index += 1;
            index % 2 == 0
        });
        let why = why(take(&context, 240 * MIB));
        assert_eq!(names(&why), order, "{why:#}");
        let text = why.to_text();
        assert!(text.contains("why: ") && text.contains("and: "), "{text}");
        drop((data, blocks, context));
        sim::set_other_processes(0, []).expect("none");
    }
    turn.all_came_back();
    Ok(())
}

#[test]
fn blocks_that_lose_a_part_of_each_page() -> Result<()> {
    let turn = turn();
    if !simulated("blocks_that_lose_a_part_of_each_page") {
        return Ok(());
    }
    let context = context()?;
    let mut blocks = Vec::new();
    while let Ok(block) = take(&context, 2 * MIB + 1) {
        blocks.push(block);
    }
    let why = why(take(&context, GIB));
    let lost = blocks.len() as u64 * (2 * PAGE - (2 * MIB as u64 + 1));
    assert!(
        why.causes().contains(&Cause::Rounding { bytes: lost }),
        "{why:#}"
    );
    drop((blocks, context));
    turn.all_came_back();
    Ok(())
}

/// Two contexts on one device: what the other holds is named.
#[test]
fn another_context_of_this_process_is_named() -> Result<()> {
    let turn = turn();
    if !simulated("another_context_of_this_process_is_named") {
        return Ok(());
    }
    let (one, two) = (context()?, Context::builder().dedicated().build()?);
    let buffer = take(&one, 3 * GIB)?;
    let why = why(take(&two, 2 * GIB));
    let bytes = 3 * GIB as u64;
    assert_eq!(why.causes(), [Cause::OtherContexts { bytes }], "{why:#}");
    drop((buffer, one, two));
    turn.all_came_back();
    Ok(())
}

/// Without records there are totals and no places, and nobody is blamed.
#[test]
fn counts_alone_give_totals_alone() -> Result<()> {
    let turn = turn();
    if !simulated("counts_alone_give_totals_alone") {
        return Ok(());
    }
    let context = Context::builder().level(TrackingLevel::Counts).build()?;
    let data = leave(&context, 64 * MIB)?;
    let why = why(take(&context, GIB));
    assert!(why.call_sites.is_empty() && why.pages.is_none());
    assert_eq!(names(&why), ["own_data"]);
    assert_eq!(why.usage[0].amount.bytes, data.len() as u64);
    assert!(why.to_text().contains("level=sites"), "{why:#}");
    drop((data, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn text_and_json_of_every_report_can_be_read() -> Result<()> {
    let turn = turn();
    if !simulated("text_and_json_of_every_report_can_be_read") {
        return Ok(());
    }
    let context = context()?;
    let _label = cuguard::label("a \"label\"\n");
    let data = leave(&context, 64 * MIB)?;
    let error = take(&context, GIB).unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n') && line.contains("own data"), "{line}");
    let Error::OutOfMemory(why) = &error else {
        panic!("{error}")
    };
    json::check(&why.to_json()).expect("it is JSON");
    // Who prints it adds the end of the last line.
    assert_eq!(format!("{why:#}\n"), why.to_text());
    assert_eq!(format!("{error:#}\n"), why.to_text());
    // From `main` or `unwrap`: the report, with one headline.
    let debug = format!("{error:?}");
    assert_eq!(format!("{debug}\n"), why.to_text());
    assert_eq!(debug.matches("CUDA_ERROR_OUT_OF_MEMORY").count(), 1);
    assert!(!debug.ends_with('\n') && debug.contains("where the memory is:"));
    drop((data, context));
    turn.all_came_back();
    Ok(())
}

/// Memory that other code took from the driver is this process's, and no guard's.
#[test]
fn memory_that_no_guard_took() -> Result<()> {
    let turn = turn();
    if !simulated("memory_that_no_guard_took") {
        return Ok(());
    }
    use cuguard::driver::api;
    let context = context()?;
    let free = context.memory()?.free;
    let mut address = 0;
    {
        let _bound = context.make_current()?;
        // SAFETY: the variable can be written to, and the context is current.
        let code = unsafe { api::cuMemAlloc_v2(&mut address, 3 * GIB) };
        assert!(code.is_success(), "{code}");
    }
    let own = take(&context, 256 * MIB)?;
    let why = why(take(&context, 2 * GIB));
    let context_itself = why.total.expect("it is told") - free;
    let bytes = 3 * GIB as u64 + context_itself;
    assert_eq!(why.causes(), [Cause::OutsideGuards { bytes }], "{why:#}");
    let text = why.to_text();
    assert!(text.contains("outside of its guards"), "{text}");
    // Nothing is left to explain.
    assert!(!text.contains("the rest "), "{text}");
    // Handed to a guard, it is named by its line.
    // SAFETY: it was allocated above.
    let guard = unsafe { DeviceBuffer::<u8>::from_raw(&context, address, 3 * GIB) };
    let why = self::why(take(&context, 2 * GIB));
    assert_eq!(names(&why), ["own_data"], "{why:#}");
    drop((own, guard, context));
    turn.all_came_back();
    Ok(())
}

/// The driver refuses once, and has the memory when the error would be made: another thread has freed it in between.
#[test]
fn memory_that_is_freed_meanwhile() -> Result<()> {
    let turn = turn();
    if !simulated("memory_that_is_freed_meanwhile") {
        return Ok(());
    }
    let context = context()?;
    let stream = Stream::new(&context)?;
    let pool = Pool::new(&context)?;
    type Allocate = fn(&Context, &Stream, &Pool) -> Result<DeviceBuffer<u8>>;
    let ways: [(&str, Allocate); 3] = [
        ("cuMemAlloc_v2", |context, _, _| take(context, GIB)),
        ("cuMemAllocAsync", |_, stream, _| take_on(stream, GIB)),
        // SAFETY: nobody reads it.
        ("cuMemCreate", |_, _, pool| unsafe {
            DeviceBuffer::uninitialized(pool, GIB)
        }),
    ];
    for (function, allocate) in ways {
        let refuse = sim::Fault::nth_call_of(function, 1)
            .returning(cuguard::driver::sys::CUresult::OUT_OF_MEMORY);
        let refuse = sim::inject(refuse).expect("there is such a function");
        let buffer = allocate(&context, &stream, &pool);
        sim::clear_faults();
        assert_eq!(refuse.fired(), 1, "{function}");
        drop(buffer?);
    }
    drop((pool, stream, context));
    turn.all_came_back();
    Ok(())
}

/// The driver refuses while as much is free.
#[test]
fn memory_that_is_free_and_refused() -> Result<()> {
    let turn = turn();
    if !simulated("memory_that_is_free_and_refused") {
        return Ok(());
    }
    let context = context()?;
    let own = take(&context, GIB)?;
    let refuse = sim::Fault::nth_call_of("cuMemAlloc_v2", 1)
        .returning(cuguard::driver::sys::CUresult::OUT_OF_MEMORY)
        .sticky();
    sim::inject(refuse).expect("there is such a function");
    let why = why(take(&context, GIB));
    sim::clear_faults();
    let free = context.memory()?.free;
    assert_eq!(why.causes(), [Cause::FreeButRefused { free }], "{why:#}");
    assert!(why.to_text().contains("probe_largest(true)"), "{why:#}");
    drop((own, context));
    turn.all_came_back();
    Ok(())
}

/// Both the limit and the device have less.
#[test]
fn more_than_the_limit_and_more_than_the_device() -> Result<()> {
    let turn = turn();
    if !simulated("more_than_the_limit_and_more_than_the_device") {
        return Ok(());
    }
    let context = Context::builder().memory_limit(GIB as u64).build()?;
    let limit = why(take(&context, 2 * GIB));
    assert_eq!(names(&limit), ["memory_limit"]);
    let line = limit.to_string();
    assert!(
        line.contains("2 GiB were requested, and the limit is 1 GiB"),
        "{line}"
    );
    assert!(limit.to_text().contains("raise memory_limit from 1 GiB"));
    let both = why(take(&context, 5 * GIB));
    assert_eq!(names(&both), ["memory_limit", "larger_than_device"]);
    assert!(!both.to_text().contains("raise memory_limit"), "{both:#}");
    drop(context);
    turn.all_came_back();
    Ok(())
}

/// What was given away may be freed by now: it is told apart, and named as far as it is taken.
#[test]
fn what_was_given_away_is_in_no_other_figure() -> Result<()> {
    let turn = turn();
    if !simulated("what_was_given_away_is_in_no_other_figure") {
        return Ok(());
    }
    let context = context()?;
    let address = take(&context, GIB)?.into_raw();
    let why = why(take(&context, 4 * GIB - 64 * MIB));
    assert!(why.usage.is_empty() && why.call_sites.is_empty(), "{why:#}");
    assert_eq!(why.escaped[0].amount.bytes, GIB as u64);
    assert_eq!(why.pages.map(|pages| pages.taken()), Some(0));
    let bytes = GIB as u64;
    assert_eq!(why.causes(), [Cause::Escaped { bytes }], "{why:#}");
    assert!(why.to_text().contains("from_raw"), "{why:#}");
    // SAFETY: given away above.
    drop(unsafe { DeviceBuffer::<u8>::from_raw(&context, address, GIB) });
    drop(context);
    turn.all_came_back();
    Ok(())
}
