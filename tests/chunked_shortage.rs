//! Chunked work where memory is short: what the program is asked to give up for it, and when.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cuguard::{Chunked, Context, DeviceBuffer, Error, Result};

use crate::support::*;
use cuguard::oom::ReleaseCallback;

const MIB: usize = 1 << 20;

/// Memory that a callback gives back, and how often it was called.
struct Cache {
    held: Arc<Mutex<Option<DeviceBuffer<u8>>>>,
    calls: Arc<AtomicUsize>,
    _callback: ReleaseCallback,
}

impl Cache {
    fn new(context: &Context, bytes: usize) -> Result<Self> {
        let buffer = DeviceBuffer::zeroed(context, bytes)?.with_label("cache");
        let held = Arc::new(Mutex::new(Some(buffer)));
        let calls = Arc::new(AtomicUsize::new(0));
        let callback = context.release_on_oom({
            let (held, calls) = (held.clone(), calls.clone());
            move |_| {
                calls.fetch_add(1, Ordering::Relaxed);
                drop(held.lock().unwrap().take());
            }
        });
        Ok(Self {
            held,
            calls,
            _callback: callback,
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn is_held(&self) -> bool {
        self.held.lock().unwrap().is_some()
    }
}

fn limited(bytes: usize) -> Result<Context> {
    Context::builder().memory_limit(bytes as u64).build()
}

/// A real error, as an allocation answers it.
fn out_of_memory() -> Error {
    let context = limited(0).expect("a context");
    DeviceBuffer::<u8>::zeroed(&context, 1).expect_err("nothing can be had")
}

#[test]
fn want_of_memory_in_collect_ends_the_work() -> Result<()> {
    let turn = turn();
    let context = context()?;
    let own = out_of_memory();
    let ranges = Mutex::new(Vec::new());
    let chunked = Chunked::new(&context).piece_bytes(4000).min_piece_bytes(4);
    let result = chunked.read(
        &vec![1_u32; 100_000],
        |_, _| Ok(()),
        |range, ()| {
            ranges.lock().unwrap().push(range);
            Err(own.clone())
        },
    );
    assert_eq!(result.unwrap_err(), own);
    let ranges = ranges.into_inner().unwrap();
    // Of the two lanes each may have collected one piece: whole, and once.
    assert!(ranges.iter().all(|range| range.len() == 1000), "{ranges:?}");
    assert!((1..=2).contains(&ranges.len()), "{ranges:?}");
    assert_ne!(ranges.first(), ranges.get(1));
    cuguard::assert_no_leaks!(context);
    drop(context);
    turn.all_came_back();
    Ok(())
}

#[test]
fn a_sum_counts_each_value_once() -> Result<()> {
    let _turn = turn();
    let context = context()?;
    let own = out_of_memory();
    let (sum, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let values: Vec<u32> = (0..1000).collect();
    // One lane, as one piece is enough.
    let result = Chunked::new(&context).min_piece_bytes(4).read(
        &values,
        |_, _| Ok(()),
        |range, ()| {
            let part: u32 = values[range].iter().sum();
            sum.fetch_add(part as usize, Ordering::Relaxed);
            match failed.fetch_add(1, Ordering::Relaxed) {
                0 => Err(own.clone()),
                _ => Ok(()),
            }
        },
    );
    assert_eq!(result.unwrap_err(), own);
    assert_eq!((sum.into_inner(), failed.into_inner()), (499_500, 1));
    Ok(())
}

#[test]
fn caches_are_left_alone_where_smaller_pieces_do() -> Result<()> {
    let turn = turn();
    let context = limited(8 * MIB)?;
    let cache = Cache::new(&context, MIB)?;
    let mut values = vec![0_u8; 50 * MIB];
    // By itself it takes what the limit leaves: a quarter of 7 MiB.
    let summary = Chunked::new(&context).update(&mut values, |s, mut piece| {
        s.fill(&mut piece.data, 1) // no memory of its own
    })?;
    assert_eq!((summary.piece_len, summary.halved), (7 * MIB / 4, 0));
    // Where more is asked for, it tries; and where more is needed, in the closure and beside it.
    let summary = Chunked::new(&context)
        .piece_bytes(32 * MIB)
        .with(|len| DeviceBuffer::<u8>::zeroed(&context, len))
        .update(&mut values, |s, mut piece| {
            drop(DeviceBuffer::<u8>::zeroed(&context, piece.data.len())?);
            s.fill(&mut piece.data, 2)
        })?;
    assert!(summary.halved >= 4, "{summary:?}");
    assert!(values.iter().all(|value| *value == 2));
    assert_eq!((cache.calls(), cache.is_held()), (0, true));
    drop((cache, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn caches_give_way_where_the_smallest_piece_does_not_fit() -> Result<()> {
    let turn = turn();
    let context = limited(8 * MIB)?;
    let cache = Cache::new(&context, 8 * MIB)?;
    let mut values = vec![0_u8; 4 * MIB];
    let chunked = Chunked::new(&context).piece_bytes(MIB);
    let summary = chunked.update(&mut values, |s, mut piece| s.fill(&mut piece.data, 1))?;
    assert!(values.iter().all(|value| *value == 1));
    assert_eq!(summary.piece_len, 64 << 10);
    assert!(!cache.is_held());
    assert!((1..=2).contains(&cache.calls()), "once for a lane at most");
    drop((cache, context));
    turn.all_came_back();
    Ok(())
}

#[test]
fn the_error_in_the_end_has_a_report() -> Result<()> {
    let _turn = turn();
    let context = limited(8 * MIB)?;
    let cache = Cache::new(&context, MIB)?;
    let kept = DeviceBuffer::<u8>::zeroed(&context, 7 * MIB)?.with_label("kept");
    let mut values = vec![0_u8; 32 * MIB];
    let result = Chunked::new(&context)
        .piece_bytes(16 * MIB)
        .min_piece_bytes(2 * MIB)
        .update(&mut values, |_, _| Ok(()));
    let Err(Error::OutOfMemory(why)) = result else {
        panic!("there is no room for 2 MiB: {result:?}");
    };
    assert_eq!(why.request.bytes, Some(2 << 20), "{why:#}");
    assert!(why.free.is_some() && !why.recovery.is_empty(), "{why:#}");
    assert_eq!(why.call_sites[0].group.label.as_deref(), Some("kept"));
    // It was asked, at the smallest piece alone: both lanes, and the last of them once more.
    assert!((1..=3).contains(&cache.calls()), "{}", cache.calls());
    drop(kept);
    Ok(())
}
