//! Events as bytes: one tag, and numbers of variable length, most of them differences to the event before.
//!
//! The tag has three bits of what happened and five bits that say which fields are as before: they take no bytes then.
//! Differences are to the event before in the same *run*: a run begins with [`BEGIN`], which has the thread and the time.

use crate::data::What;
use crate::format::{Bytes, MAX_VARINT, Put, unzigzag, zigzag};

/// What happened; the low bits of a tag.
pub(crate) mod op {
    /// A thread begins to write: differences are to zero.
    pub(crate) const BEGIN: u8 = 1;
    pub(crate) const ALLOCATED: u8 = 2;
    pub(crate) const FREED: u8 = 3;
    pub(crate) const CONTEXT_CREATED: u8 = 4;
    pub(crate) const CONTEXT_ENDED: u8 = 5;
    pub(crate) const OUT_OF_MEMORY: u8 = 6;
    /// Something alive got a name.
    pub(crate) const LABELLED: u8 = 7;
    pub(crate) const MASK: u8 = 7;
}

/// Fields that are as before; the high bits of a tag.
mod same {
    pub(super) const STACK: u8 = 1 << 3;
    pub(super) const STREAM: u8 = 1 << 4;
    pub(super) const CONTEXT: u8 = 1 << 5;
    pub(super) const LABEL: u8 = 1 << 6;
    pub(super) const BYTES: u8 = 1 << 7;
    /// Of a free, for which the other bits are unused.
    pub(super) const KIND: u8 = 1 << 3;
    /// Of a free: the program did not free it. Readers that do not know this bit see a free.
    pub(super) const RECLAIMED: u8 = 1 << 4;
}

/// The most bytes of one event: a tag, a kind, the time, address, bytes, stack, stream, context and label.
pub(crate) const MAX_EVENT: usize = 2 + 7 * MAX_VARINT;

/// What a writer and a reader know of the events before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct State {
    time: u64,
    address: u64,
    bytes: u64,
    stream: u64,
    stack: u32,
    context: u32,
    label: u32,
    kind: u8,
}

/// An event of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// A thread begins to write, at a time.
    Begin { thread: u32, time: u64 },
    /// Something happened.
    Event { time: u64, what: What },
    /// Something alive got a name.
    Labelled {
        time: u64,
        kind: u8,
        address: u64,
        label: u32,
    },
}

/// The bytes of one event.
pub(crate) struct Encoded {
    bytes: [u8; MAX_EVENT],
    length: usize,
}

impl Encoded {
    #[inline]
    fn new() -> Self {
        Self {
            bytes: [0; MAX_EVENT],
            length: 0,
        }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Put for Encoded {
    #[inline]
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
}

impl State {
    /// The first event of a run.
    pub(crate) fn begin(&mut self, thread: u32, time: u64) -> Encoded {
        let mut out = Encoded::new();
        out.byte(op::BEGIN);
        out.number(thread.into());
        out.number(time);
        *self = Self {
            time,
            ..Self::default()
        };
        out
    }

    #[inline]
    fn put_time(&mut self, out: &mut Encoded, time: u64) {
        // A difference may be negative: clocks of processors differ, and aggregation writes events late.
        out.number(zigzag(time.wrapping_sub(self.time)));
        self.time = time;
    }

    #[inline]
    fn put_address(&mut self, out: &mut Encoded, address: u64) {
        out.number(zigzag(address.wrapping_sub(self.address)));
        self.address = address;
    }

    /// An event as bytes.
    #[inline]
    pub(crate) fn encode(&mut self, time: u64, what: &What) -> Encoded {
        let mut out = Encoded::new();
        match *what {
            What::Allocated {
                kind,
                address,
                bytes,
                stack,
                stream,
                context,
                label,
            } => {
                let bit = |same, bit| if same { bit } else { 0 };
                let tag = op::ALLOCATED
                    | bit(stack == self.stack, same::STACK)
                    | bit(stream == self.stream, same::STREAM)
                    | bit(context == self.context, same::CONTEXT)
                    | bit(label == self.label, same::LABEL)
                    | bit(bytes == self.bytes, same::BYTES);
                out.byte(tag);
                out.byte(kind);
                self.put_time(&mut out, time);
                self.put_address(&mut out, address);
                if tag & same::BYTES == 0 {
                    out.number(bytes);
                }
                if tag & same::STACK == 0 {
                    out.number(stack.into());
                }
                if tag & same::STREAM == 0 {
                    out.number(stream);
                }
                if tag & same::CONTEXT == 0 {
                    out.number(context.into());
                }
                if tag & same::LABEL == 0 {
                    out.number(label.into());
                }
                (self.bytes, self.stack, self.stream) = (bytes, stack, stream);
                (self.context, self.label, self.kind) = (context, label, kind);
            }
            What::Freed {
                kind,
                address,
                context,
            }
            | What::Reclaimed {
                kind,
                address,
                context,
            } => {
                let mut tag = op::FREED;
                if matches!(what, What::Reclaimed { .. }) {
                    tag |= same::RECLAIMED;
                }
                if kind == self.kind {
                    tag |= same::KIND;
                }
                if context == self.context {
                    tag |= same::CONTEXT;
                }
                out.byte(tag);
                self.put_time(&mut out, time);
                self.put_address(&mut out, address);
                if tag & same::KIND == 0 {
                    out.byte(kind);
                }
                if tag & same::CONTEXT == 0 {
                    out.number(context.into());
                }
                (self.context, self.kind) = (context, kind);
            }
            What::ContextCreated { context, device } => {
                out.byte(op::CONTEXT_CREATED);
                self.put_time(&mut out, time);
                out.number(context.into());
                out.number(device.into());
            }
            What::ContextEnded { context } => {
                out.byte(op::CONTEXT_ENDED);
                self.put_time(&mut out, time);
                out.number(context.into());
            }
            What::OutOfMemory {
                bytes,
                stack,
                context,
            } => {
                out.byte(op::OUT_OF_MEMORY);
                self.put_time(&mut out, time);
                out.number(bytes);
                out.number(stack.into());
                out.number(context.into());
            }
        }
        out
    }

    /// A name for something alive.
    pub(crate) fn label(&mut self, time: u64, kind: u8, address: u64, label: u32) -> Encoded {
        let mut out = Encoded::new();
        out.byte(op::LABELLED);
        out.byte(kind);
        self.put_time(&mut out, time);
        self.put_address(&mut out, address);
        out.number(label.into());
        out
    }

    #[inline]
    fn take_time(&mut self, from: &mut Bytes<'_>) -> Option<u64> {
        self.time = self.time.wrapping_add(unzigzag(from.number()?));
        Some(self.time)
    }

    #[inline]
    fn take_address(&mut self, from: &mut Bytes<'_>) -> Option<u64> {
        self.address = self.address.wrapping_add(unzigzag(from.number()?));
        Some(self.address)
    }

    /// Reads the next event. `None` for bytes that are no event.
    pub(crate) fn decode(&mut self, from: &mut Bytes<'_>) -> Option<Written> {
        let tag = from.byte()?;
        let event = |time, what| Some(Written::Event { time, what });
        match tag & op::MASK {
            op::BEGIN if tag == op::BEGIN => {
                let (thread, time) = (from.small()?, from.number()?);
                *self = Self {
                    time,
                    ..Self::default()
                };
                Some(Written::Begin { thread, time })
            }
            op::ALLOCATED => {
                self.kind = from.byte()?;
                let (time, address) = (self.take_time(from)?, self.take_address(from)?);
                if tag & same::BYTES == 0 {
                    self.bytes = from.number()?;
                }
                if tag & same::STACK == 0 {
                    self.stack = from.small()?;
                }
                if tag & same::STREAM == 0 {
                    self.stream = from.number()?;
                }
                if tag & same::CONTEXT == 0 {
                    self.context = from.small()?;
                }
                if tag & same::LABEL == 0 {
                    self.label = from.small()?;
                }
                let what = What::Allocated {
                    kind: self.kind,
                    address,
                    bytes: self.bytes,
                    stack: self.stack,
                    stream: self.stream,
                    context: self.context,
                    label: self.label,
                };
                event(time, what)
            }
            op::FREED => {
                let (time, address) = (self.take_time(from)?, self.take_address(from)?);
                if tag & same::KIND == 0 {
                    self.kind = from.byte()?;
                }
                if tag & same::CONTEXT == 0 {
                    self.context = from.small()?;
                }
                let (kind, context) = (self.kind, self.context);
                let what = match tag & same::RECLAIMED {
                    0 => What::Freed {
                        kind,
                        address,
                        context,
                    },
                    _ => What::Reclaimed {
                        kind,
                        address,
                        context,
                    },
                };
                event(time, what)
            }
            op::CONTEXT_CREATED => {
                let time = self.take_time(from)?;
                let (context, device) = (from.small()?, from.small()?);
                event(time, What::ContextCreated { context, device })
            }
            op::CONTEXT_ENDED => {
                let time = self.take_time(from)?;
                let context = from.small()?;
                event(time, What::ContextEnded { context })
            }
            op::OUT_OF_MEMORY => {
                let time = self.take_time(from)?;
                let (bytes, stack, context) = (from.number()?, from.small()?, from.small()?);
                let what = What::OutOfMemory {
                    bytes,
                    stack,
                    context,
                };
                event(time, what)
            }
            op::LABELLED => {
                let kind = from.byte()?;
                let (time, address) = (self.take_time(from)?, self.take_address(from)?);
                let label = from.small()?;
                Some(Written::Labelled {
                    time,
                    kind,
                    address,
                    label,
                })
            }
            _ => None,
        }
    }
}
