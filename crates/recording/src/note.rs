//! Notes as bytes: what is known of a process beside its events. Each has its length, so that readers skip those that they do not know.

use crate::data::Found;
use crate::format::{Bytes, LONGEST_TEXT, Put, cut, put_text};

/// What is noted.
mod tag {
    pub(super) const DIAGNOSIS: u8 = 1;
    pub(super) const FOUND: u8 = 2;
    pub(super) const EXIT_BEGINS: u8 = 3;
    pub(super) const WORK: u8 = 4;
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    /// A part of the diagnosis of an allocation that failed at a time, on a thread. The parts follow each other.
    Diagnosis {
        time: u64,
        thread: u32,
        part: String,
    },
    /// What a search at the end found.
    Found(Found),
    /// The exit of the process begins, at a time.
    ExitBegins { time: u64 },
    /// How many operations there had been that are no events, at a time.
    Work { time: u64, count: u64 },
}

impl Note {
    /// A diagnosis in parts that fit into the smallest chunk.
    pub(crate) fn diagnosis(time: u64, thread: u32, text: &str) -> Vec<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (part, more) = cut(rest, LONGEST_TEXT);
            parts.push(Self::Diagnosis {
                time,
                thread,
                part: part.to_owned(),
            });
            rest = more;
        }
        parts
    }

    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let tag = match self {
            Self::Diagnosis { time, thread, part } => {
                body.number(*time);
                body.number((*thread).into());
                put_text(&mut body, part, LONGEST_TEXT);
                tag::DIAGNOSIS
            }
            Self::Found(found) => {
                body.byte(found.kind);
                body.number(found.address);
                body.number(found.context.into());
                body.byte(found.lost.into());
                tag::FOUND
            }
            Self::ExitBegins { time } => {
                body.number(*time);
                tag::EXIT_BEGINS
            }
            Self::Work { time, count } => {
                body.number(*time);
                body.number(*count);
                tag::WORK
            }
        };
        let mut out = vec![tag];
        out.number(body.len() as u64);
        out.append(&mut body);
        out
    }

    /// Reads the next note; `None` for bytes that are none. A note of an unknown kind is `Some(None)`.
    pub(crate) fn decode(from: &mut Bytes<'_>) -> Option<Option<Self>> {
        let tag = from.byte()?;
        let length = from.number()?;
        let mut body = from.take(length)?;
        Some(Some(match tag {
            tag::DIAGNOSIS => Self::Diagnosis {
                time: body.number()?,
                thread: body.small()?,
                part: body.text()?,
            },
            tag::FOUND => Self::Found(Found {
                kind: body.byte()?,
                address: body.number()?,
                context: body.small()?,
                lost: body.byte()? != 0,
            }),
            tag::EXIT_BEGINS => Self::ExitBegins {
                time: body.number()?,
            },
            tag::WORK => Self::Work {
                time: body.number()?,
                count: body.number()?,
            },
            _ => return Some(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::Note;
    use crate::data::Found;
    use crate::format::{Bytes, MIN_CHUNK_SIZE, chunk};

    fn samples() -> Vec<Note> {
        let found = |lost| {
            Note::Found(Found {
                kind: 3,
                address: u64::MAX,
                context: u32::MAX,
                lost,
            })
        };
        let mut samples = Note::diagnosis(u64::MAX, u32::MAX, "why: \u{e9}");
        samples.extend([found(false), found(true)]);
        samples.push(Note::ExitBegins { time: u64::MAX });
        samples.push(Note::Work {
            time: 1,
            count: u64::MAX,
        });
        samples
    }

    #[test]
    fn notes_are_read_as_they_were_written() {
        for note in samples() {
            let bytes = note.encode();
            let mut read = Bytes::new(&bytes);
            assert_eq!(Note::decode(&mut read), Some(Some(note)));
            assert!(read.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Note::decode(&mut Bytes::new(&bytes[..length])), None);
            }
        }
    }

    #[test]
    fn unknown_notes_are_skipped() {
        let mut bytes = vec![200, 3, 1, 2, 3];
        let known = samples().remove(0);
        bytes.extend(known.encode());
        let mut read = Bytes::new(&bytes);
        assert_eq!(Note::decode(&mut read), Some(None));
        assert_eq!(Note::decode(&mut read), Some(Some(known)));
    }

    #[test]
    fn the_parts_of_a_long_diagnosis_fit_into_the_smallest_chunk() {
        let text = "\u{e9}".repeat(5000);
        let parts = Note::diagnosis(u64::MAX, u32::MAX, &text);
        let joined: String = parts
            .iter()
            .map(|part| match part {
                Note::Diagnosis { part, .. } => part.as_str(),
                Note::Found(_) | Note::ExitBegins { .. } | Note::Work { .. } => "",
            })
            .collect();
        assert_eq!(joined, text);
        for part in parts {
            assert!(part.encode().len() <= MIN_CHUNK_SIZE as usize - chunk::RECORDS);
        }
    }
}
