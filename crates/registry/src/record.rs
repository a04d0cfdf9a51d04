//! What is kept of one resource: its key, what its guard knows, and the record.

use std::hash::{Hash, Hasher};
use std::time::Duration;

use cuguard_sync::{clock, per_thread};

use crate::call_site::CallSiteId;
use crate::caller;
use crate::hash::mix;
use crate::kind::ResourceKind;
use crate::label_scope;
use crate::names::NameId;
use crate::owner::Owner;
use crate::trace::Trace;

/// The key of a record.
///
/// The kind is part of it, because a stream's handle may equal an address in device memory. So is the
/// [per-thread slot](per_thread) of the thread that allocated: a thread finds its own records in shards
/// that no other thread uses, as long as each thread frees what it allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The kind of resource.
    pub kind: ResourceKind,
    /// The slot of the thread that inserted the record, or [`BY_ADDRESS`] and a number derived from the address.
    pub(crate) slot: u32,
    /// An address or a handle.
    pub address: u64,
}

/// Set in [`Key::slot`] where any thread may free: the slot follows from the address.
const BY_ADDRESS: u32 = 1 << 31;

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The highest bits of an address are unused, so one word holds both.
        state.write_u64(self.address.rotate_left(5) ^ self.kind.index() as u64);
        state.write_u8(self.slot as u8);
    }
}

impl Key {
    /// The key of a resource that the calling thread just allocated.
    #[must_use]
    #[inline]
    pub fn new(kind: ResourceKind, address: u64) -> Self {
        Self {
            kind,
            // Threads without a slot of their own use the first.
            slot: (per_thread::slot_index() % per_thread::SLOTS) as u32,
            address,
        }
    }

    /// The key of a resource that any thread may look up by its address, for programs without guards: see
    /// [`Registry::insert_stack`](crate::Registry::insert_stack).
    ///
    /// ```
    /// use cuguard_registry::{Key, ResourceKind};
    ///
    /// let key = Key::by_address(ResourceKind::Device, 0x7f00_0000_0000);
    /// let other = std::thread::spawn(|| Key::by_address(ResourceKind::Device, 0x7f00_0000_0000));
    /// assert_eq!(other.join().unwrap(), key);
    /// ```
    #[must_use]
    #[inline]
    pub fn by_address(kind: ResourceKind, address: u64) -> Self {
        let slot = mix(0, address) % per_thread::SLOTS as u64;
        Self {
            kind,
            slot: BY_ADDRESS | slot as u32,
            address,
        }
    }

    /// Whether [`by_address`](Self::by_address) made it.
    #[inline]
    pub(crate) fn is_by_address(self) -> bool {
        self.slot & BY_ADDRESS != 0
    }

    /// The same key, of a kind that the caller knows it has. The fields are read one by one: the compiler copies a key that was
    /// just written by its fields as a whole, which stalls store forwarding.
    #[must_use]
    #[inline(always)]
    pub fn known_to_be(&self, kind: ResourceKind) -> Self {
        Self {
            kind,
            slot: self.slot,
            address: self.address,
        }
    }

    /// The same resource, whichever thread allocated it.
    pub(crate) fn any_slot(self) -> Self {
        Self { slot: 0, ..self }
    }
}

/// What a guard knows of a resource that it just allocated.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its size; 0 for handles.
    pub bytes: u64,
    /// The type of the elements; empty for handles.
    pub type_name: &'static str,
    /// The handle of the stream that it was allocated on; 0 for none.
    pub stream: u64,
}

impl Entry {
    /// A resource that is not memory.
    #[must_use]
    pub const fn of_handle(type_name: &'static str) -> Self {
        Self {
            bytes: 0,
            type_name,
            stream: 0,
        }
    }
}

/// Set in [`Record::created`] when ownership was released to the program. The time in nanoseconds does
/// not reach these three bits for 73 years.
const ESCAPED: u64 = 1 << 63;

/// Set when the guard was dropped inside a host function, where the driver permits no free.
const DEFERRED: u64 = 1 << 62;

/// Set when the guard was dropped and another resource keeps this one.
const KEPT: u64 = 1 << 61;

const FLAGS: u64 = ESCAPED | DEFERRED | KEPT;

/// What is known of one live resource. Small, because there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: u64,
    stream: u64,
    /// Nanoseconds since the start of the process, and [`FLAGS`].
    created: u64,
    pub(crate) call_site: CallSiteId,
    pub(crate) thread: NameId,
    /// The label scope that it was allocated in. Under a key [by address](Key::by_address) there is none, and this is the
    /// [`Owner`].
    pub(crate) scope: NameId,
    /// Its own name.
    pub(crate) name: NameId,
}

// 56 bytes with its key of 16. Tables of a power of two are between 7/16 and 7/8 full, so a record
// costs at most 130 bytes.
const _: () = assert!(size_of::<Record>() == 40 && size_of::<Key>() == 16);

/// The time, for [`Record::created`].
#[inline(always)]
fn now() -> u64 {
    clock::nanoseconds() & !FLAGS
}

/// Two numbers in one word of a record.
#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The size of a record in words.
pub(crate) const WORDS: usize = size_of::<Record>() / size_of::<u64>();

impl Record {
    /// Created now, by the caller.
    #[cfg(test)]
    pub(crate) fn new(bytes: u64, stream: u64, call_site: CallSiteId) -> Self {
        Self::from_words(Self::new_words(bytes, stream, call_site))
    }

    /// The words of a record that is created now, by the caller. In registers: a record in memory would be written by its
    /// fields and read by words, which stalls store forwarding.
    #[inline(always)]
    pub(crate) fn new_words(bytes: u64, stream: u64, call_site: CallSiteId) -> [u64; WORDS] {
        let origin = join(call_site, caller::thread());
        let label = join(label_scope::scope(), 0);
        [bytes, stream, now(), origin, label]
    }

    /// A resource of which only the size is known.
    #[inline]
    pub(crate) fn unknown(bytes: u64) -> Self {
        Self {
            bytes,
            stream: 0,
            created: now(),
            call_site: 0,
            thread: 0,
            scope: 0,
            name: 0,
        }
    }

    /// Created now by the caller.
    #[inline]
    pub(crate) fn owned_by(owner: Owner, entry: &Entry, trace: Trace) -> Self {
        Self {
            stream: entry.stream,
            call_site: trace.id(),
            thread: trace.thread,
            scope: owner.0,
            ..Self::unknown(entry.bytes)
        }
    }

    /// The number of its context, for a record under a key [by address](Key::by_address); without meaning for others.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let key = Key::by_address(ResourceKind::Stream, 0x5500);
    /// registry.insert_stack(key, Entry::of_handle(""), &[0x1234], 3);
    /// assert_eq!(registry.remove(key, 0).map(|record| record.context()), Some(3));
    /// ```
    #[must_use]
    pub fn context(&self) -> u32 {
        self.owner().number()
    }

    /// The owner, for a record under a key [by address](Key::by_address); without meaning for others.
    pub(crate) fn owner(&self) -> Owner {
        Owner(self.scope)
    }

    #[inline]
    pub(crate) fn to_words(self) -> [u64; WORDS] {
        let (origin, label) = (
            join(self.call_site, self.thread),
            join(self.scope, self.name),
        );
        [self.bytes, self.stream, self.created, origin, label]
    }

    #[inline]
    pub(crate) fn from_words([bytes, stream, created, origin, label]: [u64; WORDS]) -> Self {
        Self {
            bytes,
            stream,
            created,
            call_site: origin as u32,
            thread: (origin >> 32) as u32,
            scope: label as u32,
            name: (label >> 32) as u32,
        }
    }

    /// [`bytes`](Self::bytes) of the record with these words.
    #[inline]
    pub(crate) fn bytes_in(words: impl FnOnce(usize) -> u64) -> u64 {
        words(0)
    }

    /// Its size; 0 for handles.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The handle of the stream that it was allocated on; 0 for none.
    #[must_use]
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// When it was created, on the clock of [`cuguard_sync::clock`].
    #[must_use]
    pub fn created(&self) -> Duration {
        Duration::from_nanos(self.created_nanoseconds())
    }

    pub(crate) fn created_nanoseconds(&self) -> u64 {
        self.created & !FLAGS
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.created & KEPT != 0
    }

    pub(crate) fn set_kept(&mut self) {
        self.created |= KEPT;
    }

    /// Whether `into_raw` released its ownership.
    pub(crate) fn is_escaped(&self) -> bool {
        self.created & ESCAPED != 0
    }

    pub(crate) fn set_escaped(&mut self, escaped: bool) {
        self.created = self.created & !ESCAPED | if escaped { ESCAPED } else { 0 };
    }

    /// Whether its guard was dropped, and the free is still to come.
    pub(crate) fn is_deferred(&self) -> bool {
        self.created & DEFERRED != 0
    }

    pub(crate) fn set_deferred(&mut self) {
        self.created |= DEFERRED;
    }

    /// The record of a resource that a guard owns.
    pub(crate) fn without_flags(self) -> Self {
        Self {
            created: self.created & !FLAGS,
            ..self
        }
    }
}

/// A record that was removed, for [`Registry::put_back_removed`](crate::Registry::put_back_removed).
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The kind of resource.
    pub kind: ResourceKind,
    /// An address or a handle.
    pub address: u64,
    /// The record.
    pub record: Record,
}

impl Removed {
    /// The key that it had.
    pub(crate) fn key(&self) -> Key {
        Key::by_address(self.kind, self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::{Key, Record};
    use crate::hash::{BuildSlotHasher, SLOT_SHARDS};
    use crate::kind::{ResourceKind, TrackingLevel};
    use crate::label;
    use crate::{call_site, labels, names};

    #[test]
    fn a_record_returns_what_was_put_in() {
        let _scope = label("scope");
        let here = Location::caller();
        let call_site = call_site::intern(here, "f32", TrackingLevel::Sites, 8);
        let mut record = Record::new(4096, 7, call_site);
        assert_eq!((record.bytes(), record.stream()), (4096, 7));
        let call_site = call_site::get(record.call_site).unwrap();
        assert_eq!((call_site.site, call_site.type_name), (Some(here), "f32"));
        assert_eq!(labels::text(record.scope).as_deref(), Some("scope"));
        assert!(names::text(record.thread).is_some());
        assert_eq!(Record::from_words(record.to_words()), record);
        let created = record.created();
        record.set_escaped(true);
        assert!(record.is_escaped());
        assert_eq!(record.created(), created);
        record.set_escaped(false);
        assert!(!record.is_escaped());
        assert_eq!(record.created(), created);
    }

    /// A thread that locks a shard of its slot does not block threads with other slots: with each key
    /// locked in turn, keys of the same slot are locked now and then, those of others never.
    #[test]
    fn each_slot_has_shards_of_its_own() {
        let map: dashmap::DashMap<Key, (), BuildSlotHasher> =
            dashmap::DashMap::with_hasher_and_shard_amount(BuildSlotHasher::default(), SLOT_SHARDS);
        let key = |slot, address: u64| Key {
            kind: ResourceKind::Device,
            slot,
            address: 0x7f00_0000_0000 + address * 512,
        };
        let slots = cuguard_sync::per_thread::SLOTS as u32;
        let mut locked = 0;
        for slot in 0..slots {
            for address in 0..8 {
                let _held = map.entry(key(slot, address));
                for other in 0..slots {
                    let is_locked = map.try_get(&key(other, 100)).is_locked();
                    assert!(!is_locked || other == slot, "{slot} and {other}");
                    locked += u32::from(is_locked);
                }
            }
        }
        // Two shards a slot.
        let tried = slots * 8;
        assert!((tried / 4..=tried * 3 / 4).contains(&locked), "{locked}");
    }

    #[test]
    fn an_unknown_record_has_a_size_only() {
        let record = Record::unknown(12);
        assert_eq!((record.bytes(), record.stream()), (12, 0));
        assert_eq!(
            (record.call_site, record.thread, record.scope, record.name),
            (0, 0, 0, 0)
        );
    }
}
