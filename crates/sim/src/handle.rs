//! Handles: numbers that look like pointers and are never used twice, so that a handle that was
//! destroyed can be told from one that never was.

/// The number behind a handle, counted for each kind by itself. Handles have room for 2^42 of
/// them, which is more than a process can use up.
pub(crate) type Id = u64;

/// What a handle stands for. The number marks the handles of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Kind {
    Context = 0xC7,
    Stream = 0x57,
    Event = 0xE7,
    Pool = 0xB0,
    Array = 0xA7,
    Physical = 0x9F,
}

impl Kind {
    const COUNT: usize = 6;

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Stream => "stream",
            Self::Event => "event",
            Self::Pool => "memory pool",
            Self::Array => "array",
            Self::Physical => "physical memory handle",
        }
    }

    fn place(self) -> usize {
        match self {
            Self::Context => 0,
            Self::Stream => 1,
            Self::Event => 2,
            Self::Pool => 3,
            Self::Array => 4,
            Self::Physical => 5,
        }
    }
}

const KIND_SHIFT: u32 = 48;
const ID_SHIFT: u32 = 6;
/// The low bits of a context's number tell its device, so that a context which is long gone can
/// still be asked for it, and nothing has to be remembered.
const DEVICE_BITS: u32 = 6;

/// Not checked in release builds: a handle is looked up by its number, so one that names something
/// else is wrong and not unsafe, and there are 2^42 numbers of each kind.
pub(crate) fn encode(kind: Kind, id: Id) -> usize {
    debug_assert!(id >> (KIND_SHIFT - ID_SHIFT) == 0, "no room in a handle");
    ((kind as usize) << KIND_SHIFT) | ((id as usize) << ID_SHIFT)
}

/// The number behind a handle, if it is one of that kind, alive or not.
pub(crate) fn decode(kind: Kind, handle: usize) -> Option<Id> {
    let aligned = handle.is_multiple_of(1 << ID_SHIFT);
    let number = handle & ((1 << KIND_SHIFT) - 1);
    (aligned && handle >> KIND_SHIFT == kind as usize).then_some((number >> ID_SHIFT) as Id)
}

/// The device that a context, alive or not, is on.
pub(crate) fn device_of_context(id: Id) -> u32 {
    (id & ((1 << DEVICE_BITS) - 1)) as u32
}

/// Which numbers were given out.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: [u64; Kind::COUNT],
}

impl Numbers {
    /// A new number. Contexts have [`next_context`](Self::next_context).
    pub(crate) fn next(&mut self, kind: Kind) -> Id {
        let last = &mut self.last[kind.place()];
        *last += 1;
        *last
    }

    /// The number of devices is checked where the machine is configured.
    pub(crate) fn next_context(&mut self, device: u32) -> Id {
        debug_assert!(device < 1 << DEVICE_BITS);
        self.next(Kind::Context) << DEVICE_BITS | Id::from(device)
    }

    /// Whether something of this kind has had this number, alive or not.
    pub(crate) fn was_given(&self, kind: Kind, id: Id) -> bool {
        let number = match kind {
            Kind::Context => id >> DEVICE_BITS,
            _ => id,
        };
        (1..=self.last[kind.place()]).contains(&number)
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
        let mut numbers = Numbers::default();
        let (stream, context) = (numbers.next(Kind::Stream), numbers.next_context(63));
        assert!(numbers.was_given(Kind::Stream, stream));
        assert!(!numbers.was_given(Kind::Stream, stream + 1));
        assert!(!numbers.was_given(Kind::Event, stream));
        assert!(numbers.was_given(Kind::Context, context));
        assert_eq!(device_of_context(context), 63);
        assert!(
            !numbers.was_given(Kind::Context, 63),
            "there is no number 0"
        );
    }
}
