//! Operations of a pool, on a fake driver, against the model of the pool's own tests: no two blocks overlap, no byte of a block
//! changes, no memory is handed out while a stream may still use it, the figures are right, and nothing is left at the end.

use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use cuguard_pool::Settings;

use super::bounded;

#[expect(dead_code, reason = "the pool's tests use the rest")]
#[path = "../../../pool/tests/central/fake/mod.rs"]
mod fake;
#[expect(dead_code, reason = "the pool's tests use the rest")]
#[path = "../../../pool/tests/central/model.rs"]
mod model;

use fake::{KIB, MIB};
use model::Model;

const STREAMS: u64 = 3;

/// The most operations of a program.
const MOST: usize = 16;

/// Bytes as operations of a pool.
///
/// # Panics
///
/// Where the pool differs from its model, or memory is not bounded.
pub fn pool_sequence(bytes: &[u8]) {
    // Records and tags for a card of 32 MiB, in tables that double. The input has only the operations.
    bounded(bytes.len(), 64 << 10, 4 << 20, || {
        // Ends where the bytes end.
        let _ = run(&mut Unstructured::new(bytes));
    });
}

fn run(bytes: &mut Unstructured<'_>) -> arbitrary::Result<()> {
    let begin: u8 = bytes.arbitrary()?;
    let settings = Settings {
        limit: if begin & 1 != 0 { 12 * MIB } else { u64::MAX },
        keep: if begin & 2 != 0 { 4 * MIB } else { 0 },
        share_tails: begin & 4 == 0,
        merge: begin & 12 != 12,
        ..Settings::default()
    };
    let mut model = Model::new(32 * MIB, settings);
    // Most of the time goes into these bytes; whether blocks overlap is checked without them.
    model.step = 256 * KIB;
    if begin & 16 != 0 {
        model.fake.limit_reservations(8 * MIB);
    }
    let mut clock = Instant::now();
    for _ in 0..MOST {
        let Ok(action) = bytes.arbitrary::<u8>() else {
            break;
        };
        step(&mut model, &mut clock, action, bytes).unwrap_or_default();
    }
    model.check();
    model.check_overlap();
    while let Some(last) = model.live.len().checked_sub(1) {
        model.free(last, 0);
    }
    model.fake.complete_all();
    model.pool.trim(0).expect("the driver refuses nothing");
    assert_eq!(model.pool.stats().held, 0, "{:?}", model.pool.stats());
    model.destroy();
    Ok(())
}

/// A size: of a slot, of a window, or of some pages. Slots are of 16 KiB and more, as a page of smaller ones has thousands, which
/// takes a millisecond.
fn size(bytes: &mut Unstructured<'_>) -> arbitrary::Result<u64> {
    let number: u8 = bytes.arbitrary()?;
    let value = u64::from(number >> 2) + 1;
    Ok(match number & 3 {
        0 => 8 * KIB + value * 600,
        1 => value * 4 * KIB,
        2 => 256 * KIB + value * 30 * KIB,
        _ => value * 64 * KIB,
    })
}

fn step(
    model: &mut Model,
    clock: &mut Instant,
    action: u8,
    bytes: &mut Unstructured<'_>,
) -> arbitrary::Result<()> {
    let stream = u64::from(action >> 4) % STREAMS;
    match action & 15 {
        // The card may be full.
        0..=3 => drop(model.allocate(stream, size(bytes)?)),
        4 => {
            let (bytes, count) = (size(bytes)?, usize::from(bytes.arbitrary::<u8>()? % 8) + 1);
            let _ = model.allocate_many(stream, bytes, count);
        }
        5..=8 if !model.live.is_empty() => {
            let at = usize::from(bytes.arbitrary::<u8>()?) % model.live.len();
            let own = model.live[at].stream;
            model.free(at, if action & 15 == 8 { stream } else { own });
        }
        9 | 10 => model.fake.complete(stream),
        11 => model.pool.stream_ends(&stream).expect("nothing is refused"),
        12 => {
            let keep = u64::from(bytes.arbitrary::<u8>()?) * 64 * KIB;
            let before = model.pool.stats().held;
            let released = model.pool.trim(keep).expect("nothing is refused");
            assert_eq!(before - model.pool.stats().held, released);
        }
        13 => {
            *clock += Duration::from_secs(u64::from(action >> 4));
            model.pool.decay(*clock).expect("nothing is refused");
        }
        14 => {
            let before = model.pool.stats().held;
            let compacted = model.compact(u64::MAX).expect("nothing is refused");
            assert_eq!(before - model.pool.stats().held, compacted.released);
            model.check();
            model.check_overlap();
        }
        15 if !model.live.is_empty() => {
            let at = usize::from(bytes.arbitrary::<u8>()?) % model.live.len();
            let live = &mut model.live[at];
            let address = live.block.address;
            let done = match live.pinned {
                true => model.pool.unpin(address),
                false => model.pool.pin(address),
            };
            assert!(done);
            live.pinned = !live.pinned;
        }
        _ => {}
    }
    Ok(())
}
