//! The operations of a pool, one part a file: `impl` blocks of [`State`](crate::state::State).
//!
//! It must not know threads and locks: [`Central`](crate::Central), in front of it, has those.

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
