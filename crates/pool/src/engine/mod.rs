//! What a pool does, each part a file: `impl` blocks of [`State`](crate::state::State).
//!
//! It must not know threads and locks: those are in front of it, in [`Central`](crate::Central).

mod acquire;
mod attach;
mod compact;
mod destroy;
mod pins;
mod range;
mod reclaim;
mod repair;
mod report;
mod resize;
mod slot;
#[cfg(test)]
mod test_driver;
mod vacant;
