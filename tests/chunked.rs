//! Chunked work: every value once, on any amount of memory; and nothing is left behind.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use cuguard::chunked::Piece;
use cuguard::driver::sys::CUresult;
use cuguard::sim::{self, Config, Fault, OtherProcess};
use cuguard::{Chunked, Context, DeviceBuffer, Error, Module, PinnedBuffer, Result, Scope};

const MIB: usize = 1 << 20;

fn numbers(len: usize) -> Vec<u32> {
    (0..len as u32)
        .map(|i| i.wrapping_mul(2654435761))
        .collect()
}

/// Work that shows which piece did it: its second half becomes its first, and the first value the
/// index of the piece's start.
fn mark<'s>(s: &Scope<'s, '_>, piece: Piece<'s, '_, u32>) -> Result<()> {
    let half = piece.data.len() / 2;
    let start = piece.range.start as u32;
    let (front, rest) = piece.data.split_at(half)?;
    let mut back = rest.slice(..half)?;
    s.copy(&mut back, &front)?;
    s.fill(&mut front.slice(..half.min(1))?, start)
}

/// The same on the host.
fn marked(values: &[u32], piece: usize) -> Vec<u32> {
    let mut values = values.to_vec();
    for (index, piece_of) in values.chunks_mut(piece).enumerate() {
        let half = piece_of.len() / 2;
        piece_of.copy_within(..half, half);
        piece_of[..half.min(1)].fill((index * piece) as u32);
    }
    values
}

/// Runs a test in a process of its own, on a simulated device of so many bytes. `None` for the
/// parent, which has done its part.
fn on_small_device(test: &str, bytes: usize) -> Option<Context> {
    if part().is_none() {
        if simulated(test) {
            succeeded(&child(test, "run", &[("CUGUARD_DRIVER", "sim")]));
        }
        return None;
    }
    let config = Config::new().memory(bytes as u64).context_cost(2 << 20);
    sim::configure(config).unwrap();
    Some(Context::new(0).unwrap())
}

#[track_caller]
fn nothing_is_left(context: &Context) {
    cuguard::assert_no_leaks!(context);
    assert_eq!((context.live_bytes(), context.live_count()), (0, 0));
}

/// Whether these ranges are all of `0..len`, once each, and how many there are.
fn cover(mut ranges: Vec<Range<usize>>, len: usize) -> usize {
    ranges.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in &ranges {
        assert_eq!(range.start, end, "{ranges:?}");
        end = range.end;
    }
    assert_eq!(end, len);
    ranges.len()
}

#[test]
fn odd_lengths_come_out_right() -> Result<()> {
    let turn = turn();
    let context = context()?;
    for (len, piece) in [
        (1, 1),
        (2, 1),
        (7, 3),
        (1000, 1000),
        (1001, 1000),
        (99_999, 4096),
    ] {
        let before = numbers(len);
        let mut values = before.clone();
        let chunked = Chunked::new(&context)
            .piece_bytes(piece * 4 + 3)
            .min_piece_bytes(4);
        let summary = chunked.update(&mut values, mark)?;
        assert!(values == marked(&before, piece), "{len} in {piece}");
        assert_eq!(
            (summary.pieces, summary.piece_len, summary.halved),
            (len.div_ceil(piece), piece, 0)
        );
    }
    nothing_is_left(&context);
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn no_values_and_values_without_size() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let chunked = Chunked::new(&context);
    let summary = chunked.update::<u32, _, _>(&mut [], |_, _| panic!("no piece"))?;
    assert_eq!(summary.pieces, 0);
    let calls = AtomicUsize::new(0);
    let summary = chunked.update(&mut [(); 1000], |_, piece| {
        assert_eq!((piece.data.len(), piece.range), (1000, 0..1000));
        calls.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })?;
    assert_eq!((summary.pieces, calls.into_inner()), (1, 1));
    nothing_is_left(&context);
    Ok(())
}

#[test]
fn values_that_are_only_read_are_collected_once() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let values = numbers(100_001);
    let table = DeviceBuffer::from_slice(&context, &[42_u32])?;
    let collected = Mutex::new(Vec::new());
    let summary = Chunked::new(&context)
        .piece_bytes(40_000)
        .min_piece_bytes(4)
        .with(|len| {
            Ok((
                PinnedBuffer::<u32>::zeroed(&context, len)?,
                PinnedBuffer::<u32>::zeroed(&context, 1)?,
            ))
        })
        .read(
            &values,
            |s, piece| {
                let (output, entry) = piece.extra;
                let output = &mut output[..piece.data.len()];
                s.download(&mut s.bind_host_mut(output), &piece.data)?;
                // What the closure borrows can be bound too.
                s.download(&mut s.bind_host_mut(entry), &s.bind(&table)?)
            },
            |range, (output, entry)| {
                assert_eq!(output[..range.len()], values[range.clone()]);
                assert_eq!(entry[0], 42);
                collected.lock().unwrap().push(range);
                Ok(())
            },
        )?;
    assert_eq!(cover(collected.into_inner().unwrap(), values.len()), 11);
    assert_eq!(summary.pieces, 11);
    drop(table);
    nothing_is_left(&context);
    Ok(())
}

#[test]
fn two_pieces_are_under_way_at_once() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let together = std::sync::Barrier::new(2);
    let mut values = numbers(2000);
    // Each of the two waits for the other.
    let chunked = Chunked::new(&context).piece_bytes(4000);
    let summary = chunked.update(&mut values, |_, _| {
        together.wait();
        Ok(())
    })?;
    assert_eq!(summary.pieces, 2);
    assert_eq!(values, numbers(2000));
    Ok(())
}

#[test]
fn a_kernel_works_on_each_piece() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let module = Module::from_ptx(&context, include_str!("../kernels/pattern.ptx"))?;
    let fill = module.function("fill_pattern")?;
    const PIECE: usize = MIB / 8;
    let mut words = vec![0; 10 * PIECE + 1];
    let chunked = Chunked::new(&context).piece_bytes(4 * PIECE);
    let summary = chunked.update(&mut words, |s, piece| {
        let (count, seed) = (piece.data.len() as u64, piece.range.start as u32);
        // SAFETY: fill_pattern(words, count, seed) writes `count` words.
        unsafe { s.launch(&fill, (64, 256), &[&piece.data, &count, &seed]) }
    })?;
    assert_eq!(summary.pieces, 11);
    let expected = numbers(PIECE);
    for (index, piece) in words.chunks(PIECE).enumerate() {
        let seed = (index * PIECE) as u32;
        assert!(piece.iter().zip(&expected).all(|(a, b)| *a == b ^ seed));
    }
    Ok(())
}

#[test]
fn data_larger_than_the_device() -> Result<()> {
    let Some(context) = on_small_device("data_larger_than_the_device", 32 * MIB) else {
        return Ok(());
    };
    let before = numbers(25 * MIB + 1); // a hundred mebibytes
    let mut values = before.clone();
    let summary = Chunked::new(&context).update(&mut values, mark)?;
    // A quarter of the 30 MiB that are free.
    assert_eq!((summary.piece_len, summary.halved), (30 * MIB / 16, 0));
    assert!(values == marked(&before, summary.piece_len));
    nothing_is_left(&context);
    context.close()
}

#[test]
fn pieces_are_halved_where_the_device_is_nearly_full() -> Result<()> {
    let test = "pieces_are_halved_where_the_device_is_nearly_full";
    let Some(context) = on_small_device(test, 64 * MIB) else {
        return Ok(());
    };
    // 6 MiB are free: three pages, for two pieces.
    let other = OtherProcess::new(4711, "trainer", 56 << 20);
    sim::set_other_processes(0, [other]).unwrap();
    let before = numbers(5 * MIB);
    let mut values = before.clone();
    let chunked = Chunked::new(&context).piece_bytes(16 * MIB);
    let summary = chunked.update(&mut values, |_, _| Ok(()))?;
    assert!(values == before);
    // To 4 MiB where the lanes did not meet, else to 2.
    assert!((2..=3).contains(&summary.halved), "{summary:?}");
    nothing_is_left(&context);
    // Not a page is free: the error says what could not be had.
    let other = OtherProcess::new(4711, "trainer", 62 << 20);
    sim::set_other_processes(0, [other]).unwrap();
    let error = chunked.update(&mut values, mark).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::OUT_OF_MEMORY), "{error}");
    let error = Chunked::new(&context).update(&mut values, mark);
    assert_eq!(error.unwrap_err().code(), Some(CUresult::OUT_OF_MEMORY));
    assert!(values == before);
    nothing_is_left(&context);
    context.close()
}

#[test]
fn pieces_are_halved_where_the_closure_allocates() -> Result<()> {
    let test = "pieces_are_halved_where_the_closure_allocates";
    let Some(context) = on_small_device(test, 66 * MIB) else {
        return Ok(());
    };
    // Two pieces of 16 MiB fit into 64 MiB, but not with three times as much for each.
    let before = numbers(20 * MIB + 5);
    let mut values = before.clone();
    let chunked = Chunked::new(&context).piece_bytes(16 * MIB);
    let summary = chunked.update(&mut values, |s, piece| {
        let scratch = DeviceBuffer::<u32>::zeroed(&context, 3 * piece.data.len())?;
        mark(s, piece)?;
        drop(scratch);
        Ok(())
    })?;
    assert!(summary.halved >= 1, "{summary:?}");
    // However they were cut, each value has been through one piece, and none through two.
    let ranges = Mutex::new(Vec::new());
    let scratch = |len| DeviceBuffer::<u32>::zeroed(&context, 3 * len);
    let again = Chunked::new(&context).piece_bytes(16 * MIB).with(scratch);
    let work = |s: &Scope<'_, '_>, piece: Piece<'_, '_, u32, _>| {
        let _ = (s, piece);
        Ok(())
    };
    again.read(&before, work, |range, _| {
        ranges.lock().unwrap().push(range);
        Ok(())
    })?;
    cover(ranges.into_inner().unwrap(), before.len());
    nothing_is_left(&context);
    context.close()
}

#[test]
fn one_lane_goes_on_where_two_do_not_fit() -> Result<()> {
    let test = "one_lane_goes_on_where_two_do_not_fit";
    let Some(context) = on_small_device(test, 32 * MIB) else {
        return Ok(());
    };
    // 20 MiB for each piece, however small it is: only one at a time.
    let mut values = numbers(MIB);
    let chunked = Chunked::new(&context)
        .piece_bytes(MIB)
        .min_piece_bytes(MIB / 2)
        .with(|_| DeviceBuffer::<u8>::zeroed(&context, 20 * MIB));
    let summary = chunked.update(&mut values, |s, mut piece| s.fill(&mut piece.data, 9))?;
    assert!(values.iter().all(|value| *value == 9));
    assert!(summary.halved <= 1, "{summary:?}");
    nothing_is_left(&context);
    // Not even one.
    let chunked = chunked.with(|_| DeviceBuffer::<u8>::zeroed(&context, 40 * MIB));
    let error = chunked.update(&mut values, |_, _| Ok(())).unwrap_err();
    assert_eq!(error.code(), Some(CUresult::OUT_OF_MEMORY), "{error}");
    nothing_is_left(&context);
    context.close()
}

#[test]
fn a_fault_in_the_middle_is_told_and_leaves_nothing() -> Result<()> {
    let turn = turn();
    if !simulated("a_fault_in_the_middle_is_told_and_leaves_nothing") {
        return Ok(());
    }
    let context = context()?;
    let before = numbers(10_000);
    for (function, nth) in [
        ("cuMemAlloc_v2", 1),
        ("cuMemHostRegister_v2", 1),
        ("cuStreamCreateWithPriority", 1),
        ("cuMemcpyHtoD_v2", 1),
        ("cuMemcpyHtoDAsync_v2", 3),
        ("cuMemcpyDtoDAsync_v2", 4),
        ("cuMemcpyDtoHAsync_v2", 5),
        ("cuStreamSynchronize", 4),
    ] {
        let fault = Fault::nth_call_of(function, nth).returning(CUresult::LAUNCH_TIMEOUT);
        let fault = sim::inject(fault).unwrap();
        let mut values = before.clone();
        let chunked = Chunked::new(&context)
            .piece_bytes(4000)
            .min_piece_bytes(400);
        let error = chunked.update(&mut values, mark).unwrap_err();
        sim::clear_faults();
        assert_eq!(fault.fired(), 1, "{function}");
        assert_eq!(error.code(), Some(CUresult::LAUNCH_TIMEOUT), "{error}");
        nothing_is_left(&context);
        assert_eq!(sim::live_counters().allocations().bytes, 0);
        // Each piece is as it was, or done.
        let done = marked(&before, 1000);
        for (index, piece) in values.chunks(1000).enumerate() {
            let range = index * 1000..(index + 1) * 1000;
            assert!(piece == &before[range.clone()] || piece == &done[range]);
        }
    }
    // Out of memory for once: it is done again, with half.
    for function in [
        "cuMemAlloc_v2",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamSynchronize",
    ] {
        let fault = Fault::nth_call_of(function, 1).returning(CUresult::OUT_OF_MEMORY);
        sim::inject(fault).unwrap();
        let mut values = before.clone();
        let chunked = Chunked::new(&context).piece_bytes(4000).min_piece_bytes(40);
        let summary = chunked.update(&mut values, |s, mut piece| {
            let first = piece.range.start as u32;
            let (mut front, rest) = piece.data.split_at(1)?;
            piece.data = rest;
            let (mut next, _) = piece.data.split_at(1)?;
            s.copy(&mut next, &front)?;
            s.fill(&mut front, first)
        })?;
        sim::clear_faults();
        assert_eq!((summary.halved, summary.piece_len), (1, 500), "{function}");
        for (index, value) in values.iter().enumerate().step_by(1000) {
            assert_eq!(*value, index as u32);
        }
        nothing_is_left(&context);
    }
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_second_lane_fails_while_the_first_works() -> Result<()> {
    let _turn = turn();
    if !simulated("the_second_lane_fails_while_the_first_works") {
        return Ok(());
    }
    let context = context()?;
    let chunked = Chunked::new(&context)
        .piece_bytes(4000)
        .min_piece_bytes(400);
    let run = |code| {
        let fault = Fault::nth_call_of("cuMemAlloc_v2", 2).returning(code);
        let fault = sim::inject(fault).unwrap();
        let mut values = numbers(10_000);
        let has_waited = AtomicBool::new(false);
        let result = chunked.update(&mut values, |s, mut piece| {
            // The lane that comes first waits for the error of the other one.
            while fault.fired() == 0 {
                std::thread::yield_now();
            }
            if !has_waited.swap(true, Ordering::Relaxed) {
                // The error is returned to the other lane, which stops the work: nothing shows when.
                std::thread::sleep(Duration::from_millis(300));
            }
            s.fill(&mut piece.data, 5)
        });
        nothing_is_left(&context);
        (result, values)
    };
    let (result, values) = run(CUresult::LAUNCH_TIMEOUT);
    assert_eq!(result.unwrap_err().code(), Some(CUresult::LAUNCH_TIMEOUT));
    // The one that was under way was finished, and no other was begun.
    assert_eq!(values.iter().filter(|value| **value == 5).count(), 1000);
    let (result, values) = run(CUresult::OUT_OF_MEMORY);
    assert_eq!(result?.halved, 1);
    assert!(values.iter().all(|value| *value == 5));
    Ok(())
}

#[test]
fn an_error_of_the_closure_ends_the_work() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let before = numbers(100_000);
    let mut values = before.clone();
    let calls = AtomicUsize::new(0);
    let chunked = Chunked::new(&context).piece_bytes(4000).min_piece_bytes(4);
    let own = Error::ContextClosed { operation: "own" };
    let result = chunked.update(&mut values, |s, mut piece| {
        calls.fetch_add(1, Ordering::Relaxed);
        s.fill(&mut piece.data, 1)?;
        if piece.range.start == 5000 {
            return Err(own.clone());
        }
        Ok(())
    });
    assert_eq!(result.unwrap_err(), own);
    // The other lane came a little further at most; the piece that failed is as it was.
    assert!(calls.into_inner() < 100);
    assert!(values[5000..6000] == before[5000..6000]);
    assert!(values[..5000].iter().all(|value| *value == 1));
    // An error of `collect` does the same.
    let result = chunked.read(&before, |_, _| Ok(()), |_, ()| Err(own.clone()));
    assert_eq!(result.unwrap_err(), own);
    nothing_is_left(&context);
    Ok(())
}

#[test]
fn a_panic_in_the_closure_goes_on_in_the_caller() -> Result<()> {
    let turn = turn();
    let context = context()?;
    // On both lanes, in whichever comes to it; and in both at once.
    for (at, all) in [(0, false), (1000, false), (7000, false), (0, true)] {
        let mut values = numbers(20_000);
        let chunked = Chunked::new(&context).piece_bytes(4000).min_piece_bytes(4);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            chunked.update(&mut values, |s, mut piece| {
                s.fill(&mut piece.data, 1)?;
                if all || piece.range.start == at {
                    resume_unwind(Box::new("on purpose"));
                }
                Ok(())
            })
        }));
        let panic = unwound.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert!(values[at..at + 1000] == numbers(20_000)[at..at + 1000]);
        nothing_is_left(&context);
    }
    context.close()?;
    turn.all_came_back();
    Ok(())
}

#[test]
fn settings_that_make_no_sense_are_named() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let mut values = [1_u64; 10];
    let mut message = |chunked: Chunked<'_>| {
        let error = chunked.update(&mut values, |_, _| Ok(())).unwrap_err();
        assert!(matches!(error, Error::PieceTooSmall { .. }));
        error.to_string()
    };
    let chunked = Chunked::new(&context);
    assert_eq!(
        message(chunked.clone().piece_bytes(7)),
        "Chunked::update: a piece of 7 B is too small: one value takes 8 B"
    );
    assert_eq!(
        message(chunked.clone().min_piece_bytes(0)),
        "Chunked::update: a piece of 0 B is too small: one value takes 8 B"
    );
    assert_eq!(
        message(chunked.piece_bytes(4096).min_piece_bytes(8192)),
        "Chunked::update: a piece of 4 KiB is too small: the minimum that was set takes 8 KiB"
    );
    nothing_is_left(&context);
    Ok(())
}
