//! The state of a pool: what its lock guards. What is done with it is in the modules of [`crate::engine`].

use crate::addresses::Addresses;
use crate::driver::Driver;
use crate::error::PoolError;
use crate::frames::Frames;
use crate::handles::{Handle, Handles};
use crate::hash::FastMap;
use crate::random::Random;
use crate::ranges::{Ranges, Room};
use crate::settings::Settings;
use crate::slab::{FrameId, OfWindow, Slab, WindowId};
use crate::slots::Slots;
use crate::streams::Streams;
use crate::windows::Window;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

pub(crate) type Result<T, D> = std::result::Result<T, PoolError<<D as Driver>::Error>>;

pub(crate) struct State<D: Driver> {
    pub(crate) driver: D,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) addresses: Addresses,
    pub(crate) streams: Streams<D>,
    pub(crate) handles: Handles,
    pub(crate) frames: Frames,
    pub(crate) windows: Slab<OfWindow, Window>,
    /// Windows by the address of their page.
    pub(crate) pages: FastMap<WindowId>,
    pub(crate) ranges: Ranges,
    pub(crate) slots: Slots,
    /// Pins of slots, by address; those of ranges are in the range.
    pub(crate) slot_pins: FastMap<u64>,
    /// Frames that have windows or slots and had no block when they were noted.
    pub(crate) idle_frames: BTreeSet<FrameId>,
    /// Windows with live blocks that are not mapped, or without access.
    pub(crate) stuck: Vec<WindowId>,
    /// Whether there were any when the caches were last told: frees go past them meanwhile.
    pub(crate) noted_stuck: bool,
    /// Waiting for copies was refused: they may still write to granules that are free.
    pub(crate) unwaited: bool,
    /// What stayed mapped because unmapping was refused.
    pub(crate) kept_mappings: Vec<KeptMapping>,
    /// Bytes of live blocks.
    pub(crate) used: u64,
    /// Counts frees: the time that idle memory is ordered by. A clock would cost more than the rest of a free.
    pub(crate) now: u64,
    /// What `now` was at the last calls of `decay`.
    pub(crate) marks: VecDeque<(Instant, u64)>,
    pub(crate) wrong_frees: u64,
    pub(crate) merged_frames: u64,
    pub(crate) merged_windows: u64,
}

/// Pages that are still mapped and that no block uses.
#[derive(Debug)]
pub(crate) struct KeptMapping {
    pub(crate) room: Room,
    /// Which part of it is mapped: address and bytes.
    pub(crate) mapped: (u64, u64),
    pub(crate) handles: Vec<Handle>,
    /// The window, if it is mapped. It is pinned.
    pub(crate) window: Option<WindowId>,
}

impl<D: Driver> State<D> {
    pub(crate) fn new(driver: D, settings: Settings) -> Self {
        Self {
            driver,
            settings,
            random: Random::new(18),
            addresses: Addresses::default(),
            streams: Streams::new(),
            handles: Handles::default(),
            frames: Frames::new(),
            windows: Slab::new(),
            pages: FastMap::default(),
            ranges: Ranges::new(),
            slots: Slots::new(),
            slot_pins: FastMap::default(),
            idle_frames: BTreeSet::new(),
            stuck: Vec::new(),
            noted_stuck: false,
            unwaited: false,
            kept_mappings: Vec::new(),
            used: 0,
            now: 0,
            marks: VecDeque::new(),
            wrong_frees: 0,
            merged_frames: 0,
            merged_windows: 0,
        }
    }
}

/// The pool's error for a refused call.
pub(crate) fn refused<E: std::fmt::Debug>(
    function: &'static str,
) -> impl FnOnce(E) -> PoolError<E> {
    move |error| PoolError::Driver { function, error }
}
