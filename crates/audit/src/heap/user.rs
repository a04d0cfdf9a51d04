//! Who uses the blocks of the arena: no unit has blocks of both.

/// Shards of each user.
pub(super) const SHARDS: usize = 8;

/// Who uses a block. No unit has blocks of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    Driver = 0,
    Library = 1,
}

impl User {
    pub(super) const COUNT: usize = 2;

    /// Of a shard that is used by it.
    pub(super) fn of_shard(shard: u8) -> Self {
        match usize::from(shard) < SHARDS {
            true => Self::Driver,
            false => Self::Library,
        }
    }

    /// Its shard for the calling thread.
    pub(super) fn shard(self) -> usize {
        // SAFETY: no requirements. It reads the thread pointer.
        let thread = unsafe { libc::pthread_self() } as usize;
        // Thread control blocks lie a stack's size apart: the high bits of the product depend on all of them.
        let shard =
            (thread >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (usize::BITS - SHARDS.ilog2());
        self as usize * SHARDS + shard
    }
}
