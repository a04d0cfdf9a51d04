//! Cached blocks become blocks of a similar size.

use super::fake::MIB;
use super::model::Model;
use cuguard_pool::Settings;

/// A block of the first size is freed and one of the second allocated. Returns the calls of `map` and of `unmap` for that.
fn resize(from: u64, to: u64) -> (u64, u64) {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, from).unwrap();
    model.free(0, 0);
    model.fake.complete(0);
    let calls = |model: &Model| ["map", "unmap"].map(|function| model.fake.calls_of(function));
    let before = calls(&model);
    model.allocate(0, to).unwrap();
    let after = calls(&model);
    assert!(
        model.pool.stats().held <= from.max(to) + 2 * MIB,
        "{:?}",
        model.pool.stats()
    );
    model.check();
    model.check_overlap();
    model.destroy();
    (after[0] - before[0], after[1] - before[1])
}

#[test]
fn a_longer_block_is_mapped_where_it_is_longer() {
    // One call for each of two pages.
    assert_eq!(resize(100 * MIB, 104 * MIB), (2, 0));
    // The last page is another block's too, before and after.
    assert_eq!(resize(101 * MIB, 105 * MIB), (3, 1));
    assert_eq!(resize(101 * MIB, 104 * MIB), (2, 1));
}

#[test]
fn a_shorter_block_is_unmapped_where_it_was_longer() {
    // One call for all pages.
    assert_eq!(resize(104 * MIB, 100 * MIB), (0, 1));
    assert_eq!(resize(105 * MIB, 101 * MIB), (1, 2));
    // A handle of 64 MiB is unmapped whole.
    let (maps, unmaps) = resize(100 * MIB, 60 * MIB);
    assert!(maps > 0 && unmaps > 0, "{maps} and {unmaps}");
}

#[test]
fn a_block_that_its_stream_may_still_use_is_not_resized() {
    let mut model = Model::new(1 << 30, Settings::default());
    model.allocate(0, 100 * MIB).unwrap();
    model.free(0, 0);
    model.allocate(1, 104 * MIB).unwrap();
    assert!(model.pool.stats().held >= 204 * MIB);
    model.check();
    model.destroy();
}

/// Nothing but the block is in the addresses that it may grow into, and it does not grow further.
#[test]
fn a_block_that_grows_meets_no_other() {
    let mut model = Model::new(4 << 30, Settings::default());
    for _ in 0..3 {
        model.allocate(0, 40 * MIB).unwrap();
    }
    for bytes in (44..400).step_by(4) {
        model.free(1, 0);
        model.fake.complete(0);
        model.allocate(0, bytes * MIB).unwrap();
        // The block that was allocated last is the last of the model.
        let last = model.live.len() - 1;
        model.live.swap(1, last);
        model.check();
        model.check_overlap();
    }
    model.destroy();
}

/// Little memory that no block uses stays as it is: two sizes in turn need no call once both were there.
#[test]
fn a_little_is_not_resized() {
    let mut model = Model::new(1 << 30, Settings::default());
    for round in 0..10 {
        for bytes in [10 * MIB, 12 * MIB] {
            model.fake.forbid_calls(round > 1);
            model.allocate(0, bytes).unwrap();
            model.free(0, 0);
            model.fake.forbid_calls(false);
            model.fake.complete(0);
        }
    }
    model.destroy();
}
