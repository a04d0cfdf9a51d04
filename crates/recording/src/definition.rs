//! Definitions as bytes: what the numbers in events mean. They are in chunks of their own, which are never reused.

use crate::data::{Embedded, Module, RecordedKind, Site};
use crate::format::{Bytes, LONGEST_TEXT, Put, put_text};

/// What is defined.
mod tag {
    pub(super) const NAME: u8 = 1;
    pub(super) const KIND: u8 = 2;
    pub(super) const MODULE: u8 = 3;
    pub(super) const FOREIGN: u8 = 4;
    pub(super) const STACK: u8 = 5;
    pub(super) const SYMBOL: u8 = 6;
    pub(super) const EXIT: u8 = 7;
    pub(super) const STOPPED: u8 = 8;
}

/// The most bytes of a name, a path or a function: a definition must fit into the smallest chunk, which is 4 KiB.
const TEXT: usize = 1 << 10;

/// The most frames of a stack: those of the registry, with room.
const FRAMES: usize = 256;

/// The most functions at one address.
const INLINED: usize = 24;

/// A definition.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Definition {
    /// A label or the name of a thread.
    Name { id: u32, text: String },
    /// A kind of resource.
    Kind { index: u8, kind: RecordedKind },
    /// The program or a library.
    Module(Module),
    /// The frame of an interpreter, which stacks have as an address.
    Foreign {
        address: u64,
        function: String,
        file: String,
        line: u32,
    },
    /// A call site.
    Stack {
        id: u32,
        site: Option<Site>,
        type_name: String,
        frames: Vec<u64>,
    },
    /// The functions at an address.
    Symbol(Embedded),
    /// The process exited.
    Exit { time: u64 },
    /// The recording ended before the process did, and why.
    Stopped { time: u64, why: String },
}

fn put_site(out: &mut Vec<u8>, site: Option<&Site>, limit: usize) {
    let Some(site) = site else {
        out.byte(0);
        return;
    };
    out.byte(1);
    put_text(out, &site.file, limit);
    out.number(site.line.into());
    out.number(site.column.into());
}

fn take_site(from: &mut Bytes<'_>) -> Option<Option<Site>> {
    if from.byte()? == 0 {
        return Some(None);
    }
    Some(Some(Site {
        file: from.text()?,
        line: from.small()?,
        column: from.small()?,
    }))
}

impl Definition {
    /// Its bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Name { id, text } => {
                out.byte(tag::NAME);
                out.number((*id).into());
                put_text(&mut out, text, TEXT);
            }
            Self::Kind { index, kind } => {
                out.byte(tag::KIND);
                out.byte(*index);
                put_text(&mut out, &kind.name, TEXT);
                out.byte(u8::from(kind.on_device) | u8::from(kind.is_memory) << 1);
            }
            Self::Module(module) => {
                out.byte(tag::MODULE);
                put_text(&mut out, &module.path, LONGEST_TEXT);
                put_text(&mut out, &module.build_id, TEXT);
                for number in [module.start, module.end, module.bias] {
                    out.number(number);
                }
            }
            Self::Foreign {
                address,
                function,
                file,
                line,
            } => {
                out.byte(tag::FOREIGN);
                out.number(*address);
                put_text(&mut out, function, TEXT);
                put_text(&mut out, file, TEXT);
                out.number((*line).into());
            }
            Self::Stack {
                id,
                site,
                type_name,
                frames,
            } => {
                out.byte(tag::STACK);
                out.number((*id).into());
                put_site(&mut out, site.as_ref(), TEXT / 2);
                put_text(&mut out, type_name, TEXT / 4);
                let count = frames.len().min(FRAMES);
                out.number(count as u64);
                for frame in &frames[..count] {
                    out.number(*frame);
                }
            }
            Self::Symbol(symbol) => {
                out.byte(tag::SYMBOL);
                out.number(symbol.address);
                let count = symbol.functions.len().clamp(1, INLINED);
                // Names of generic functions may be long; the more are inlined into one, the shorter all.
                let limit = 3 * TEXT / count / 2;
                let functions = symbol.functions.iter().take(count);
                out.number(functions.len() as u64);
                for (function, site) in functions {
                    put_text(&mut out, function, limit);
                    put_site(&mut out, site.as_ref(), limit);
                }
            }
            Self::Exit { time } => {
                out.byte(tag::EXIT);
                out.number(*time);
            }
            Self::Stopped { time, why } => {
                out.byte(tag::STOPPED);
                out.number(*time);
                put_text(&mut out, why, TEXT);
            }
        }
        out
    }

    /// Reads the next definition. `None` for bytes that are none.
    pub(crate) fn decode(from: &mut Bytes<'_>) -> Option<Self> {
        Some(match from.byte()? {
            tag::NAME => Self::Name {
                id: from.small()?,
                text: from.text()?,
            },
            tag::KIND => {
                let (index, name, bits) = (from.byte()?, from.text()?, from.byte()?);
                let kind = RecordedKind {
                    name,
                    on_device: bits & 1 != 0,
                    is_memory: bits & 2 != 0,
                };
                Self::Kind { index, kind }
            }
            tag::MODULE => Self::Module(Module {
                path: from.text()?,
                build_id: from.text()?,
                start: from.number()?,
                end: from.number()?,
                bias: from.number()?,
            }),
            tag::FOREIGN => Self::Foreign {
                address: from.number()?,
                function: from.text()?,
                file: from.text()?,
                line: from.small()?,
            },
            tag::STACK => {
                let (id, site, type_name) = (from.small()?, take_site(from)?, from.text()?);
                let count = from.number().filter(|count| *count <= FRAMES as u64)?;
                let frames = (0..count).map(|_| from.number()).collect::<Option<_>>()?;
                Self::Stack {
                    id,
                    site,
                    type_name,
                    frames,
                }
            }
            tag::SYMBOL => {
                let address = from.number()?;
                let count = from.number().filter(|count| *count <= INLINED as u64)?;
                let functions = (0..count).map(|_| Some((from.text()?, take_site(from)?)));
                let functions = functions.collect::<Option<_>>()?;
                Self::Symbol(Embedded { address, functions })
            }
            tag::EXIT => Self::Exit {
                time: from.number()?,
            },
            tag::STOPPED => Self::Stopped {
                time: from.number()?,
                why: from.text()?,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Definition, INLINED};
    use crate::data::{Embedded, Module, RecordedKind, Site};
    use crate::format::{Bytes, MIN_CHUNK_SIZE, chunk};

    fn site() -> Option<Site> {
        Some(Site {
            file: "src/main.rs".to_owned(),
            line: 7,
            column: 3,
        })
    }

    fn samples() -> Vec<Definition> {
        vec![
            Definition::Name {
                id: 1 << 31,
                text: "loader".to_owned(),
            },
            Definition::Kind {
                index: 3,
                kind: RecordedKind {
                    name: "pinned".to_owned(),
                    on_device: false,
                    is_memory: true,
                },
            },
            Definition::Module(Module {
                path: "/bin/a".to_owned(),
                build_id: "beef".to_owned(),
                start: 1,
                end: u64::MAX,
                bias: 3,
            }),
            Definition::Foreign {
                address: u64::MAX,
                function: "f".to_owned(),
                file: "a.py".to_owned(),
                line: 9,
            },
            Definition::Stack {
                id: 9,
                site: site(),
                type_name: "f32".to_owned(),
                frames: vec![1, u64::MAX, 0],
            },
            Definition::Symbol(Embedded {
                address: 5,
                functions: vec![("main".to_owned(), site()), ("start".to_owned(), None)],
            }),
            Definition::Exit { time: 8 },
            Definition::Stopped {
                time: 9,
                why: "the disk is full".to_owned(),
            },
        ]
    }

    #[test]
    fn definitions_are_read_as_they_were_written() {
        for definition in samples() {
            let bytes = definition.encode();
            let mut read = Bytes::new(&bytes);
            assert_eq!(Definition::decode(&mut read), Some(definition));
            assert!(read.is_empty());
            for length in 0..bytes.len() {
                assert_eq!(Definition::decode(&mut Bytes::new(&bytes[..length])), None);
            }
        }
    }

    #[test]
    fn the_largest_definition_fits_into_the_smallest_chunk() {
        let long = "x".repeat(1 << 16);
        let site = || {
            Some(Site {
                file: long.clone(),
                line: u32::MAX,
                column: u32::MAX,
            })
        };
        let functions = |count| vec![(long.clone(), site()); count];
        let symbols = [1, 2, 7, INLINED, 1000].map(|count| {
            Definition::Symbol(Embedded {
                address: u64::MAX,
                functions: functions(count),
            })
        });
        let others = [
            Definition::Stack {
                id: u32::MAX,
                site: site(),
                type_name: long.clone(),
                frames: vec![u64::MAX; 1 << 10],
            },
            Definition::Module(Module {
                path: long.clone(),
                build_id: long.clone(),
                start: u64::MAX,
                end: u64::MAX,
                bias: u64::MAX,
            }),
            Definition::Foreign {
                address: u64::MAX,
                function: long.clone(),
                file: long.clone(),
                line: u32::MAX,
            },
        ];
        for definition in symbols.into_iter().chain(others) {
            let bytes = definition.encode();
            assert!(bytes.len() <= MIN_CHUNK_SIZE as usize - chunk::RECORDS);
            assert!(Definition::decode(&mut Bytes::new(&bytes)).is_some());
        }
    }
}
