//! A thread's place in the file.

use super::file::{Chunk, NoChunk};
use super::forked;
use super::pending::{Pending, SHORT};
use super::writer::Writer;
use crate::data::{Event, What};
use crate::event::{Encoded, State};
use crate::options::Label;

/// Appends the events of one thread.
#[derive(Debug)]
pub(crate) struct Cursor {
    writer: &'static Writer,
    chunk: Option<Chunk>,
    state: State,
    thread: u32,
    last: u64,
    /// The last stack and label, which are defined.
    stack: u32,
    label: u32,
    pending: Option<Pending>,
}

impl Cursor {
    pub(crate) fn new(writer: &'static Writer) -> Self {
        Self {
            writer,
            chunk: None,
            state: State::default(),
            thread: 0,
            last: 0,
            stack: 0,
            label: 0,
            pending: None,
        }
    }

    /// Appends an event. Its time, and that at which what it frees was `created`, are since the begin of the recording.
    pub(crate) fn record(&mut self, event: &Event, created: Option<u64>) {
        if let Err(error) = self.try_record(event, created) {
            self.writer.fail(error, event.time);
        }
    }

    #[inline]
    fn try_record(&mut self, event: &Event, created: Option<u64>) -> Result<(), NoChunk> {
        match event.what {
            What::Allocated { stack, label, .. } => {
                if stack != self.stack {
                    self.writer.define_stack(stack)?;
                    self.stack = stack;
                }
                if label != self.label {
                    self.writer.define_name(label)?;
                    self.label = label;
                }
            }
            What::OutOfMemory { stack, .. } => self.writer.define_stack(stack)?,
            _ => {}
        }
        if self.pending.is_some() {
            return self.record_pending(event, created);
        }
        self.append(event)
    }

    /// [`record`](Self::record) from the size limit on.
    #[cold]
    fn record_pending(&mut self, event: &Event, created: Option<u64>) -> Result<(), NoChunk> {
        let Some(pending) = &mut self.pending else {
            return Ok(());
        };
        match event.what {
            What::Allocated { kind, address, .. } => {
                let occupant = pending.occupant(kind, address);
                self.writer.define_name(event.thread)?;
                // Written before its slot is overwritten: a kill in between leaves it twice, which readers notice.
                if let Some(occupant) = occupant {
                    self.append(&occupant)?;
                }
                if let Some(pending) = &mut self.pending {
                    pending.insert(event);
                }
                Ok(())
            }
            What::Freed { kind, address, .. } => {
                let own = created.and_then(|created| pending.find(kind, address, created));
                if let Some(allocated) = own {
                    if event.time.saturating_sub(allocated.time) <= SHORT {
                        pending.leave_out(kind, address);
                        return Ok(());
                    }
                    self.append(&allocated)?;
                    if let Some(pending) = &mut self.pending {
                        pending.remove(kind, address);
                    }
                }
                self.append(event)
            }
            _ => self.append(event),
        }
    }

    #[inline]
    fn append(&mut self, event: &Event) -> Result<(), NoChunk> {
        if event.thread == self.thread
            && let Some(chunk) = &mut self.chunk
        {
            let before = self.state;
            let encoded = self.state.encode(event.time, &event.what);
            if chunk.append(encoded.as_slice()) {
                chunk.events += 1;
                self.last = self.last.max(event.time);
                return Ok(());
            }
            self.state = before;
        }
        self.append_to_new(event.thread, event.time, |state| {
            state.encode(event.time, &event.what)
        })
    }

    /// Begins a run, in another chunk where this one is full, and appends to it.
    #[cold]
    #[inline(never)]
    fn append_to_new(
        &mut self,
        thread: u32,
        time: u64,
        encode: impl Fn(&mut State) -> Encoded,
    ) -> Result<(), NoChunk> {
        self.writer.define_name(thread)?;
        self.thread = thread;
        // A chunk of an ended thread may have no room left for the event: the second or third one has.
        for _ in 0..16 {
            if self.chunk.is_none() {
                let (chunk, aggregate) = self.writer.events_chunk()?;
                self.chunk = Some(chunk);
                if aggregate && self.pending.is_none() {
                    let chunk = self.writer.pending_chunk()?;
                    self.pending = Some(Pending { chunk });
                }
            }
            let begin = self.state.begin(thread, time);
            let event = encode(&mut self.state);
            if let Some(mut chunk) = self.chunk.take() {
                if chunk.append(begin.as_slice()) && chunk.append(event.as_slice()) {
                    chunk.events += 1;
                    self.last = self.last.max(time);
                    self.chunk = Some(chunk);
                    return Ok(());
                }
                self.writer.retire(chunk, self.last);
            }
        }
        Err(NoChunk::Limit)
    }

    /// Names something alive. Its times are since the begin of the recording.
    pub(crate) fn label(&mut self, named: &Label) {
        if let Err(error) = self.try_label(named) {
            self.writer.fail(error, named.time);
        }
    }

    fn try_label(&mut self, named: &Label) -> Result<(), NoChunk> {
        let Label {
            time,
            thread,
            kind,
            address,
            created,
            label,
        } = *named;
        self.writer.define_name(label)?;
        if let Some(pending) = &mut self.pending
            && pending.label(kind, address, created, label)
        {
            return Ok(());
        }
        if thread == self.thread
            && let Some(chunk) = &mut self.chunk
        {
            let before = self.state;
            let encoded = self.state.label(time, kind, address, label);
            if chunk.append(encoded.as_slice()) {
                return Ok(());
            }
            self.state = before;
        }
        self.append_to_new(thread, time, |state| {
            state.label(time, kind, address, label)
        })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // The lock may be held by a thread that does not exist here, and the chunks belong to the parent.
        if forked::is_forked() {
            return;
        }
        if let Some(chunk) = self.chunk.take() {
            self.writer.retire(chunk, self.last);
        }
        if let Some(pending) = self.pending.take() {
            self.writer.retire_pending(pending.chunk);
        }
    }
}
