//! Handles: numbers that look like pointers and are never reused, so that a destroyed handle can be
//! told from one that never existed.

use std::collections::BTreeMap;

/// The number in a handle, counted for each kind separately. Handles have room for 2^42, more than
/// a process can use up.
pub(crate) type Id = u64;

/// What a handle refers to. The discriminant marks the handles of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Kind {
    Context = 0xC7,
    Stream = 0x57,
    Event = 0xE7,
    Pool = 0xB0,
    Array = 0xA7,
    Physical = 0x9F,
    Graph = 0x69,
    GraphNode = 0x6E,
    GraphExec = 0x6C,
    UserObject = 0x75,
    Module = 0x4D,
    Function = 0xF1,
    Library = 0x1B,
    Kernel = 0x4B,
    Linker = 0x14,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Pool => "memory pool",
            Self::Array => "array",
            Self::Physical => "physical memory handle",
            Self::Graph => "graph",
            Self::GraphNode => "graph node",
            Self::GraphExec => "instantiated graph",
            Self::UserObject => "user object",
            Self::Module => "module",
            Self::Function => "function",
            Self::Library => "library",
            Self::Kernel => "kernel",
            Self::Linker => "linker state",
        }
    }
}

const KIND_SHIFT: u32 = 48;
const ID_SHIFT: u32 = 6;
/// The low bits of a context's number are its device, so that the device of a destroyed context is
/// still known.
const DEVICE_BITS: u32 = 6;

/// Not checked in release builds: a handle is looked up by its number, so a wrong one names another
/// object and is not unsafe.
pub(crate) fn encode(kind: Kind, id: Id) -> usize {
    debug_assert!(id >> (KIND_SHIFT - ID_SHIFT) == 0, "no room in a handle");
    ((kind as usize) << KIND_SHIFT) | ((id as usize) << ID_SHIFT)
}

/// The number in a handle, if it is one of that kind, live or not.
pub(crate) fn decode(kind: Kind, handle: usize) -> Option<Id> {
    let aligned = handle.is_multiple_of(1 << ID_SHIFT);
    let number = handle & ((1 << KIND_SHIFT) - 1);
    (aligned && handle >> KIND_SHIFT == kind as usize).then_some((number >> ID_SHIFT) as Id)
}

/// The device of a context, live or not.
pub(crate) fn device_of_context(id: Id) -> u32 {
    (id & ((1 << DEVICE_BITS) - 1)) as u32
}

/// Issues ids.
#[derive(Debug, Default)]
pub(crate) struct IdAllocator {
    last: BTreeMap<Kind, u64>,
    /// The device of each context, by its number less 1.
    context_devices: Vec<u8>,
}

impl IdAllocator {
    /// A new id. For contexts there is [`next_context`](Self::next_context).
    pub(crate) fn next(&mut self, kind: Kind) -> Id {
        let last = self.last.entry(kind).or_default();
        *last += 1;
        *last
    }

    /// `Config` limits the number of devices.
    pub(crate) fn next_context(&mut self, device: u32) -> Id {
        debug_assert!(device < 1 << DEVICE_BITS);
        self.context_devices.push(device as u8);
        self.next(Kind::Context) << DEVICE_BITS | Id::from(device)
    }

    /// Whether an object of this kind has had this id, live or not.
    pub(crate) fn was_issued(&self, kind: Kind, id: Id) -> bool {
        if kind == Kind::Context {
            let index = (id >> DEVICE_BITS)
                .checked_sub(1)
                .map(|index| index as usize);
            let device = index.and_then(|index| self.context_devices.get(index));
            return device.is_some_and(|device| u32::from(*device) == device_of_context(id));
        }
        (1..=self.last.get(&kind).copied().unwrap_or(0)).contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_decodes_as_its_own_kind_only() {
        for id in [1, 77, (1 << 42) - 1] {
            let handle = encode(Kind::Stream, id);
            assert_eq!(decode(Kind::Stream, handle), Some(id));
            assert_eq!(decode(Kind::Event, handle), None);
            assert_eq!(decode(Kind::Stream, handle + 1), None);
        }
        assert_eq!(decode(Kind::Context, 0x1234), None);
    }

    #[test]
    fn a_number_is_known_of_its_own_kind_only() {
        let mut ids = IdAllocator::default();
        let (stream, context) = (ids.next(Kind::Stream), ids.next_context(63));
        assert!(ids.was_issued(Kind::Stream, stream));
        assert!(!ids.was_issued(Kind::Stream, stream + 1));
        assert!(!ids.was_issued(Kind::Event, stream));
        assert!(ids.was_issued(Kind::Context, context));
        assert_eq!(device_of_context(context), 63);
        assert!(!ids.was_issued(Kind::Context, 63), "ids start at 1");
        assert!(!ids.was_issued(Kind::Context, context - 1), "device 62");
    }
}
