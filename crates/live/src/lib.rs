//! Reports of running processes: a thread that serves a Unix socket, a signal that requests a report, and the client of
//! both.
//!
//! ```text
//!   cuguard dump, watch ── client ──► PID.sock ──► server thread ──► Source: report, figures
//!   kill -USR2 PID ── signal handler ──► pipe ──────►  │
//!                                                      └── writes the report where LEAK_REPORT says
//! ```
//!
//! - `folder` is where sockets are: a folder of mode 0700 that belongs to the user, checked on both sides.
//! - `server` is the thread. It blocks all signals, and does not keep the process from ending. `clients` has its
//!   connections: several at once, non-blocking.
//! - `signal` installs the handler, unless the program handles the signal itself.
//! - `signal_name` displays signals by name.
//! - `client` finds the socket of a process, or of all processes of the user, and sends one request. Both sides check
//!   the other's credentials (`SO_PEERCRED`).
//! - `protocol` is the format of messages: one line to the server, a status line and the body back.
//!
//! A process may have several servers: the audit library has one, and so has the crate in the program. The client asks
//! all of them.
//!
//! ```
//! use cuguard_live::{Format, Options, Request, Source, ask, start};
//!
//! struct Nothing;
//!
//! impl Source for Nothing {
//!     fn dump(&self, _: Format, _: bool) -> String {
//!         "nothing is alive\n".to_owned()
//!     }
//!     fn stats(&self, _: usize) -> String {
//!         "{}\n".to_owned()
//!     }
//!     fn write_report(&self) {}
//! }
//!
//! start(Options { source: &Nothing, signal: None, ends_process: false })?;
//! let request = Request::Dump { format: Format::Text, search: false };
//! assert_eq!(ask(std::process::id(), request).unwrap(), ["nothing is alive\n"]);
//! cuguard_live::stop();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Nothing here knows the driver, or what a report contains.

pub mod client;
mod clients;
mod connect;
mod credentials;
mod descriptor;
mod folder;
mod protocol;
mod reply;
mod running;
mod server;
mod signal;
mod signal_name;
mod threads;

pub use client::{AskError, ask, ask_others, ask_within, command_line, processes};
pub use protocol::{Format, Request};
#[doc(hidden)]
pub use protocol::{parse_reply, parse_request};
pub use running::{is_running, request_report};
pub use server::{Options, start, stop};
pub use signal::number;
pub use signal_name::SignalName;

/// What a server reports. Its functions are called on the server's thread while the program runs; none may call the driver.
pub trait Source: Sync {
    /// A report of this moment. `search` asks for a search for lost addresses, where there is one.
    fn dump(&self, format: Format, search: bool) -> String;

    /// Live bytes and the largest call sites, at most `sites` of them: one line of JSON.
    fn stats(&self, sites: usize) -> String;

    /// Writes a report of this moment where the settings say.
    fn write_report(&self);

    /// The most bytes of device memory that were alive since the last call, or since the start; `None` where that is not watched.
    fn peak(&self) -> Option<u64> {
        None
    }

    /// Has pools release the idle memory of the device with this UUID, and returns how many bytes were released. Another thread
    /// calls the driver for it, and is not waited for long.
    fn trim(&self, _device: [u8; 16]) -> u64 {
        0
    }
}
