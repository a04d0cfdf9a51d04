//! Where an address was found.

use std::fmt;

use cuguard_report::ByteSize;

/// Where the program holds an address.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    /// A global or static variable.
    Global {
        /// File name of the program or library.
        module: String,
        /// The variable's name, where the file has it.
        symbol: Option<String>,
    },
    /// A thread-local variable, or a value of `pthread_setspecific`.
    ThreadLocal {
        thread: String,
        /// File name of the program or library whose variable it is, where that is known.
        module: Option<String>,
        symbol: Option<String>,
    },
    /// Memory of `malloc`, or an anonymous mapping, which allocators use as well.
    Heap,
    /// A live frame of a thread's stack.
    Stack { thread: String },
    /// A register of a thread.
    Register { thread: String },
    /// Memory of the driver.
    Driver,
    /// A mapping with a name: a file, shared memory.
    Mapping { name: String },
    /// A block of managed memory, which the address in the other place leads to.
    Managed { from: Box<Place> },
    /// A block of `malloc`, the last of these, to which the place leads by the others.
    Blocks {
        from: Box<Place>,
        blocks: Vec<Block>,
        /// There are more behind the first.
        is_longer: bool,
    },
    /// A block of `malloc` that the program cannot reach.
    LostBlock(Block),
}

/// A block of `malloc`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Block {
    /// What the program may use of it.
    pub(crate) bytes: u64,
    /// The class of C++, of an object with virtual functions.
    pub(crate) class: Option<String>,
}

impl Place {
    /// Whether the program can get there.
    pub(crate) fn is_reachable(&self) -> bool {
        match self {
            Self::LostBlock(_) => false,
            Self::Managed { from } => from.is_reachable(),
            _ => true,
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = ByteSize(self.bytes);
        match &self.class {
            Some(class) => write!(out, "`{class}` object of {bytes}"),
            None => write!(out, "heap block of {bytes}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Global { module, symbol } => match symbol {
                Some(symbol) => write!(out, "global `{symbol}` in {module}"),
                None => write!(out, "global data of {module}"),
            },
            Place::ThreadLocal {
                thread,
                module,
                symbol,
            } => {
                match symbol {
                    Some(symbol) => write!(out, "thread-local `{symbol}`")?,
                    None => out.write_str("thread-local storage")?,
                }
                if let Some(module) = module {
                    write!(out, " in {module}")?;
                }
                write!(out, ", {thread}")
            }
            Place::Heap => out.write_str("the heap"),
            Place::Stack { thread } => write!(out, "the stack of {thread}"),
            Place::Register { thread } => write!(out, "a register of {thread}"),
            Place::Driver => out.write_str("the driver"),
            Place::Mapping { name } => write!(out, "mapping {name}"),
            Place::Managed { from } => write!(out, "managed memory reachable from {from}"),
            Place::Blocks {
                from,
                blocks,
                is_longer,
            } => {
                match **from {
                    Place::Heap => out.write_str("an anonymous mapping")?,
                    ref from => write!(out, "{from}")?,
                }
                for (index, block) in blocks.iter().enumerate() {
                    if index == 1 && *is_longer {
                        out.write_str(" → …")?;
                    }
                    write!(out, " → {block}")?;
                }
                Ok(())
            }
            Place::LostBlock(block) => write!(out, "a lost {block}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_words() {
        let global = |symbol: Option<&str>| Place::Global {
            module: "libfoo.so".into(),
            symbol: symbol.map(Into::into),
        };
        let local = |module: Option<&str>, symbol: Option<&str>| Place::ThreadLocal {
            thread: "the main thread".into(),
            module: module.map(Into::into),
            symbol: symbol.map(Into::into),
        };
        let block = |bytes, class: Option<&str>| Block {
            bytes,
            class: class.map(Into::into),
        };
        let thread = || "thread 12 (worker)".to_owned();
        for (place, words) in [
            (global(Some("cache")), "global `cache` in libfoo.so"),
            (global(None), "global data of libfoo.so"),
            (
                local(Some("a.out"), Some("slot")),
                "thread-local `slot` in a.out, the main thread",
            ),
            (local(None, None), "thread-local storage, the main thread"),
            (Place::Heap, "the heap"),
            (
                Place::Stack { thread: thread() },
                "the stack of thread 12 (worker)",
            ),
            (
                Place::Register { thread: thread() },
                "a register of thread 12 (worker)",
            ),
            (
                Place::Mapping {
                    name: "/dev/shm/x".into(),
                },
                "mapping /dev/shm/x",
            ),
            (
                Place::Managed {
                    from: Box::new(global(Some("head"))),
                },
                "managed memory reachable from global `head` in libfoo.so",
            ),
            (
                Place::Blocks {
                    from: Box::new(global(Some("cache"))),
                    blocks: vec![block(24, None), block(1024, Some("Model"))],
                    is_longer: false,
                },
                "global `cache` in libfoo.so → heap block of 24 B → `Model` object of 1 KiB",
            ),
            (
                Place::Blocks {
                    from: Box::new(Place::Heap),
                    blocks: vec![block(24, None), block(40, None), block(56, None)],
                    is_longer: true,
                },
                "an anonymous mapping → heap block of 24 B → … → heap block of 40 B → heap block of 56 B",
            ),
            (
                Place::LostBlock(block(24, None)),
                "a lost heap block of 24 B",
            ),
        ] {
            assert_eq!(place.to_string(), words);
        }
    }
}
