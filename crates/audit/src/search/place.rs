//! Where an address was found.

use std::fmt;

/// Where the program holds an address.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    /// A mapping with a name: a file, shared memory.
    Mapping { name: String },
    /// A block of managed memory, which the address in the other place leads to.
    Managed { from: Box<Place> },
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
            Place::Mapping { name } => write!(out, "mapping {name}"),
            Place::Managed { from } => write!(out, "managed memory reachable from {from}"),
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
        ] {
            assert_eq!(place.to_string(), words);
        }
    }
}
