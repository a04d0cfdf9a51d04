//! A slot of a pending chunk: an allocation that may be short-lived, in words.

use crate::data::{Event, What};
use crate::format::u64_at;

/// Words of a slot: the time and one (0: empty), address, bytes, stream, stack and context, label and thread, kind, and
/// one that is unused.
const WORDS: usize = 8;

/// Bytes of a slot.
pub(crate) const SLOT: usize = WORDS * size_of::<u64>();

/// The words of an allocation after its time, its kind and its address; `None` for another event.
pub(crate) fn words(event: &Event) -> Option<(u8, u64, [u64; 6])> {
    let What::Allocated {
        kind,
        address,
        bytes,
        stack,
        stream,
        context,
        label,
    } = event.what
    else {
        return None;
    };
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let words = [
        address,
        bytes,
        stream,
        join(stack, context),
        join(label, event.thread),
        u64::from(kind),
    ];
    Some((kind, address, words))
}

/// The allocation in a slot; `None` for an empty one.
pub(crate) fn read(slot: &[u8]) -> Option<Event> {
    let word = |index: usize| u64_at(slot, index * size_of::<u64>());
    let (origin, name) = (word(4)?, word(5)?);
    Some(Event {
        time: word(0)?.checked_sub(1)?,
        thread: (name >> 32) as u32,
        what: What::Allocated {
            address: word(1)?,
            bytes: word(2)?,
            stream: word(3)?,
            stack: origin as u32,
            context: (origin >> 32) as u32,
            label: name as u32,
            kind: word(6)? as u8,
        },
    })
}
