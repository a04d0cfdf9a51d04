//! Handles: numbers that look like pointers and are never used twice, so that a handle that was
//! destroyed can be told from one that never was.

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
}

const KIND_SHIFT: u32 = 40;
const ID_SHIFT: u32 = 6;

pub(crate) fn encode(kind: Kind, id: u32) -> usize {
    ((kind as usize) << KIND_SHIFT) | ((id as usize) << ID_SHIFT)
}

/// The number behind a handle, if it is one of that kind, alive or not.
pub(crate) fn decode(kind: Kind, handle: usize) -> Option<u32> {
    let id = handle.wrapping_sub((kind as usize) << KIND_SHIFT);
    let aligned = id.is_multiple_of(1 << ID_SHIFT);
    (aligned && id >> ID_SHIFT <= u32::MAX as usize).then_some((id >> ID_SHIFT) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_decodes_as_its_own_kind_only() {
        let handle = encode(Kind::Stream, 77);
        assert_eq!(decode(Kind::Stream, handle), Some(77));
        assert_eq!(decode(Kind::Event, handle), None);
        assert_eq!(decode(Kind::Stream, handle + 1), None);
        assert_eq!(decode(Kind::Context, 0x1234), None);
    }
}
