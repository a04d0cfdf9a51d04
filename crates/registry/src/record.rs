//! What is kept of one thing: what it is found by, what the guard knows of it, and the record.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::Location;
use std::time::Duration;

use super::call_site::{self, PlaceId};
use super::caller;
use super::kind::{Kind, Level};
use super::names::{self, Mix, NameId};
use cuguard_sync::{clock, per_thread};

/// What a record is found by. The kind belongs to it: a stream's handle may have the same number
/// as an address in device memory. So does the lane: a thread finds the records that it made itself
/// in a part of the table that no other thread touches, as long as each frees its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// The [lane](crate::lanes) of the thread that made the record.
    pub lane: u32,
    /// An address, or the number of a handle.
    pub address: u64,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Addresses have nothing in their highest bits, so one word can carry both.
        state.write_u64(self.address.rotate_left(4) ^ self.kind.index() as u64);
        state.write_u8(self.lane as u8);
    }
}

impl Key {
    /// The key of what the calling thread just made.
    pub fn new(kind: Kind, address: u64) -> Self {
        Self {
            kind,
            // Those who share a lane go with the first.
            lane: (per_thread::slot_index() % per_thread::SLOTS) as u32,
            address,
        }
    }

    /// The same thing, whoever made it.
    pub(super) fn of_anyone(self) -> Self {
        Self { lane: 0, ..self }
    }
}

/// Puts the records of a lane into shards of its own.
///
/// `DashMap` picks the shard by the bits below the highest seven, which the table within the shard
/// uses. The first five of them are the lane's here, the rest comes from the address, so that a lane
/// has two shards.
#[derive(Clone, Copy, Default)]
pub(super) struct ByLane {
    hash: Mix,
    lane: u8,
}

pub(super) type BuildByLane = BuildHasherDefault<ByLane>;

/// How many shards that makes: two for each lane.
pub(super) const LANE_SHARDS: usize = 2 * per_thread::SLOTS;

const LANE_BITS: u32 = per_thread::SLOTS.trailing_zeros();
const LANE_SHIFT: u32 = 64 - 7 - LANE_BITS;
const LANE_MASK: u64 = (per_thread::SLOTS as u64 - 1) << LANE_SHIFT;
const _: () = assert!(per_thread::SLOTS.is_power_of_two());

impl Hasher for ByLane {
    fn finish(&self) -> u64 {
        let lane = u64::from(self.lane) << LANE_SHIFT;
        self.hash.finish() & !LANE_MASK | lane
    }

    fn write(&mut self, bytes: &[u8]) {
        self.hash.write(bytes);
    }

    fn write_u64(&mut self, word: u64) {
        self.hash.write_u64(word);
    }

    fn write_u8(&mut self, lane: u8) {
        self.lane = lane;
    }
}

/// What the guard knows of a thing that it just took.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its size; 0 for handles.
    pub bytes: u64,
    /// The type of the elements; empty for handles.
    pub type_name: &'static str,
    /// The handle of the stream that it was allocated on; 0 is none.
    pub stream: u64,
}

impl Entry {
    /// For what is no memory.
    pub const fn of_handle(type_name: &'static str) -> Self {
        Self {
            bytes: 0,
            type_name,
            stream: 0,
        }
    }
}

/// Set in [`Record::born`] when ownership was released to the program. Time does not need this bit
/// and the next two for another 73 years.
const ESCAPED: u64 = 1 << 63;

/// Set when the owner was dropped where the driver permits no free, which is done later.
const DEFERRED: u64 = 1 << 62;

/// Set when the owner was dropped and something else keeps the resource.
const KEPT: u64 = 1 << 61;

const FLAGS: u64 = ESCAPED | DEFERRED | KEPT;

/// What is known of one thing that is alive. Small, as there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: u64,
    stream: u64,
    /// Nanoseconds since the start of the process, and [`FLAGS`].
    born: u64,
    pub(super) place: PlaceId,
    pub(super) thread: NameId,
    /// The label scope that it was made in.
    pub(super) scope: NameId,
    /// The name that it was given itself.
    pub(super) name: NameId,
}

// With its key of 16 bytes it makes 56; tables of a power of two are between 7/16 and 7/8 full, so
// a record costs at most 130 bytes.
const _: () = assert!(size_of::<Record>() == 40 && size_of::<Key>() == 16);

/// How many words a record is.
pub(super) const WORDS: usize = size_of::<Record>() / size_of::<u64>();

impl Record {
    #[inline]
    pub(super) fn to_words(self) -> [u64; WORDS] {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            self.bytes,
            self.stream,
            self.born,
            two(self.place, self.thread),
            two(self.scope, self.name),
        ]
    }

    #[inline]
    pub(super) fn from_words(words: [u64; WORDS]) -> Self {
        let [bytes, stream, born, made, named] = words;
        let two = |word: u64| (word as u32, (word >> 32) as u32);
        let ((place, thread), (scope, name)) = (two(made), two(named));
        Self {
            bytes,
            stream,
            born,
            place,
            thread,
            scope,
            name,
        }
    }

    /// Made now, by the caller.
    pub(super) fn new(entry: Entry, place: PlaceId) -> Self {
        Self {
            bytes: entry.bytes,
            stream: entry.stream,
            born: clock::nanoseconds() & !FLAGS,
            place,
            thread: caller::thread(),
            scope: caller::scope(),
            name: 0,
        }
    }

    /// A thing of which nothing but its size is known.
    pub(super) fn unknown(bytes: u64) -> Self {
        Self {
            bytes,
            stream: 0,
            born: clock::nanoseconds() & !FLAGS,
            place: 0,
            thread: 0,
            scope: 0,
            name: 0,
        }
    }

    /// Its size; 0 for handles.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The handle of the stream that it was allocated on; 0 is none.
    pub(super) fn stream(&self) -> u64 {
        self.stream
    }

    /// When it was made, since the start of the process.
    pub(super) fn born(&self) -> Duration {
        Duration::from_nanos(self.born_nanoseconds())
    }

    /// The same as a number, for who looks at very many.
    pub(super) fn born_nanoseconds(&self) -> u64 {
        self.born & !FLAGS
    }

    pub(super) fn is_kept(&self) -> bool {
        self.born & KEPT != 0
    }

    pub(super) fn set_kept(&mut self) {
        self.born |= KEPT;
    }

    /// Whether `into_raw` released its ownership.
    pub fn is_escaped(&self) -> bool {
        self.born & ESCAPED != 0
    }

    pub(super) fn set_escaped(&mut self, escaped: bool) {
        self.born = if escaped {
            self.born | ESCAPED
        } else {
            self.born & !ESCAPED
        };
    }

    /// Whether its owner was dropped, and the free is still to come.
    pub fn is_deferred(&self) -> bool {
        self.born & DEFERRED != 0
    }

    pub(super) fn set_deferred(&mut self) {
        self.born |= DEFERRED;
    }

    /// The record of something that is owned, as any other.
    pub(super) fn without_flags(self) -> Self {
        Self {
            born: self.born & !FLAGS,
            ..self
        }
    }
}

pub(super) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(!FLAGS, |time| time & !FLAGS)
}

/// A free that the driver refused (law 3): what, where it was made, where it was to be freed, and
/// the driver's word.
#[derive(Clone, Copy, Debug)]
pub struct FailedFree {
    pub(super) key: Key,
    pub(super) record: Record,
    /// The place that wanted to free.
    pub(super) freed: PlaceId,
    /// The driver's function.
    pub(super) function: NameId,
    pub(super) code: u32,
    /// The driver's code by name.
    pub(super) code_name: NameId,
}

impl FailedFree {
    /// `record` is what [`Registry::remove`](super::Registry::remove) answered. The calling line is
    /// kept as the one that wanted to free; its stack is kept too, whatever the level: such
    /// failures are rare, and a drop has no line of its own.
    #[track_caller]
    pub fn new(
        key: Key,
        bytes: u64,
        record: Option<Record>,
        function: &'static str,
        code: u32,
        code_name: impl AsRef<str>,
    ) -> Self {
        let site = Location::caller();
        Self {
            key,
            record: record.unwrap_or_else(|| Record::unknown(bytes)),
            freed: call_site::stack(Some(site), "", call_site::MAX_DEPTH),
            function: names::intern(function),
            code,
            code_name: names::intern(code_name.as_ref()),
        }
    }
}

/// The place of the caller, as the level asks for.
pub(super) fn place_of(
    site: &'static Location<'static>,
    type_name: &'static str,
    level: Level,
    depth: usize,
) -> PlaceId {
    match level {
        Level::Counts => 0,
        Level::Sites => call_site::site(site, type_name),
        Level::Stacks => call_site::stack(Some(site), type_name, depth),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::{BuildByLane, Entry, FailedFree, Key, LANE_SHARDS, Record, place_of};
    use crate::in_label;
    use crate::kind::{Kind, Level};
    use crate::{call_site, names};

    const ENTRY: Entry = Entry {
        bytes: 4096,
        type_name: "f32",
        stream: 7,
    };

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let _scope = in_label("scope");
        let here = Location::caller();
        let mut record = Record::new(ENTRY, place_of(here, "f32", Level::Sites, 8));
        assert_eq!((record.bytes(), record.stream()), (4096, 7));
        let place = call_site::get(record.place).unwrap();
        assert_eq!((place.site, place.type_name), (Some(here), "f32"));
        assert_eq!(names::text(record.scope), Some("scope"));
        assert!(names::text(record.thread).is_some());
        let born = record.born();
        record.set_escaped(true);
        assert!(record.is_escaped());
        assert_eq!(record.born(), born);
        record.set_escaped(false);
        assert!(!record.is_escaped());
        assert_eq!(record.born(), born);
    }

    /// A thread that holds a record of one lane holds up nobody who works in another: with each
    /// key held in turn, keys of its own lane are locked now and then, those of others never.
    #[test]
    fn each_lane_has_shards_of_its_own() {
        let map: dashmap::DashMap<Key, (), BuildByLane> =
            dashmap::DashMap::with_hasher_and_shard_amount(BuildByLane::default(), LANE_SHARDS);
        let key = |lane, address: u64| Key {
            kind: Kind::Device,
            lane,
            address: 0x7f00_0000_0000 + address * 512,
        };
        let lanes = cuguard_sync::per_thread::SLOTS as u32;
        let mut locked = 0;
        for lane in 0..lanes {
            for address in 0..8 {
                let _held = map.entry(key(lane, address));
                for other in 0..lanes {
                    let is_locked = map.try_get(&key(other, 100)).is_locked();
                    assert!(!is_locked || other == lane, "{lane} and {other}");
                    locked += u32::from(is_locked);
                }
            }
        }
        // Two shards a lane.
        let tried = lanes * 8;
        assert!((tried / 4..=tried * 3 / 4).contains(&locked), "{locked}");
    }

    #[test]
    fn an_unknown_record_has_a_size_only() {
        let record = Record::unknown(12);
        assert_eq!((record.bytes(), record.stream()), (12, 0));
        assert_eq!(
            (record.place, record.thread, record.scope, record.name),
            (0, 0, 0, 0)
        );
    }

    #[test]
    fn a_failed_free_keeps_the_stack_that_wanted_to_free() {
        let key = Key {
            kind: Kind::Device,
            lane: 0,
            address: 0x1000,
        };
        let failed = FailedFree::new(key, 5, None, "cuMemFree", 1, "CUDA_ERROR_INVALID_VALUE");
        assert_eq!(failed.record.bytes(), 5);
        let freed = call_site::get(failed.freed).unwrap();
        assert!(freed.site.unwrap().file().ends_with("record.rs"));
        assert!(!freed.stack.is_empty());
    }
}
