//! The figures of a whole run.

use crate::error::ViewError;
use crate::moment::{At, Moment, Peak, at_time, moment, peak};
use crate::run::{Fate, MarkKind, Run};
use cuguard_registry::Amount;

/// A run with its figures, and one moment of it: what a report is made of.
#[derive(Clone, Debug)]
pub struct Overview<'r> {
    /// The moment that is shown.
    pub moment: Moment<'r>,
    /// The peak of device memory. Of a leak report it is not known, and this is what the report lists.
    pub peak: Peak,
    /// What was alive at the end.
    pub at_end: Amount,
    /// The bytes of device memory of that.
    pub device_bytes_at_end: u64,
    /// What the program did not free before its context ended.
    pub leaked: Amount,
    /// What a search at the end found lost: the program had its address nowhere.
    pub lost: Amount,
    /// What a search at the end found reachable.
    pub reachable: Amount,
    /// All that was ever allocated. Of a leak report it is not known, and this is what the report lists.
    pub allocated: Amount,
    /// How many allocations failed for lack of memory.
    pub out_of_memory: u64,
}

impl<'r> Overview<'r> {
    /// Computes the figures of a run.
    ///
    /// ```
    /// use cuguard_view::{At, Overview, Run};
    ///
    /// let run = Run::default();
    /// assert_eq!(Overview::new(&run, At::Peak)?.allocated.count, 0);
    /// # Ok::<(), cuguard_view::ViewError>(())
    /// ```
    ///
    /// # Errors
    /// As [`moment`].
    pub fn new(run: &'r Run, at: At) -> Result<Self, ViewError> {
        let peak = peak(run);
        let moment = match at {
            At::Peak if !run.is_report => at_time(run, at, peak.time),
            at => moment(run, at)?,
        };
        let (mut at_end, mut device_bytes_at_end) = (Amount::default(), 0_u64);
        let (mut allocated, mut leaked) = (Amount::default(), Amount::default());
        let (mut lost, mut reachable) = (Amount::default(), Amount::default());
        for allocation in &run.allocations {
            let amount = run.amount(allocation);
            allocated += amount;
            if allocation.leaked {
                leaked += amount;
            }
            if allocation.end > run.end {
                at_end += amount;
                match allocation.fate {
                    Fate::Lost => lost += amount,
                    Fate::Reachable => reachable += amount,
                    Fate::Unknown => {}
                }
                let bytes = run.device_bytes(allocation);
                device_bytes_at_end = device_bytes_at_end.saturating_add(bytes);
            }
        }
        let is_oom = |kind: &MarkKind| matches!(kind, MarkKind::OutOfMemory { .. });
        let ooms = run.marks.iter().filter(|mark| is_oom(&mark.kind));
        Ok(Self {
            moment,
            peak,
            at_end,
            device_bytes_at_end,
            leaked,
            lost,
            reachable,
            allocated,
            out_of_memory: ooms.count() as u64,
        })
    }
}
