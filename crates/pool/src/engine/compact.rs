//! Merging.

use crate::driver::Driver;
use crate::state::{Result, State};
use crate::stats::Compacted;

impl<D: Driver> State<D> {
    /// Releases what is idle; see `Central::compact`.
    pub(crate) fn compact(&mut self, _wanted: u64) -> Result<Compacted, D> {
        self.retry_stuck()?;
        self.streams.finish_all();
        let released = self.release_all_idle();
        Ok(Compacted {
            released,
            ..Compacted::default()
        })
    }
}
