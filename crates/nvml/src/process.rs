//! Processes that use a GPU, and how NVML's lists of them are merged.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A process that uses a GPU. What is not known is `None`.
///
/// ```
/// use cuguard_nvml::{Process, ProcessKind};
///
/// let mut process = Process::new(4711).with_bytes(1 << 30);
/// process.kinds.push(ProcessKind::Compute);
/// assert!(!process.own);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its process id, as NVML returns it. In a container it may be the id on the host, or 0.
    pub pid: u32,
    /// The device memory that it holds. On some systems NVML does not know it.
    pub bytes: Option<u64>,
    /// What it uses the GPU for, each kind once, in the order of [`ProcessKind`].
    pub kinds: Vec<ProcessKind>,
    /// The name of the program.
    pub name: Option<String>,
    /// Its command line, as far as it is readable: on one line, without control characters, cut to
    /// [`COMMAND_LENGTH`](crate::COMMAND_LENGTH) characters.
    pub command: Option<String>,
    /// Its user id.
    pub uid: Option<u32>,
    /// The user's name, where `/etc/passwd` has it.
    pub user: Option<String>,
    /// Whether it is this process.
    pub own: bool,
    /// Whether `/proc` has it. If not, it is in another container or has ended.
    pub visible: bool,
    /// Whether it is a zombie: it has ended, and its parent has not waited for it.
    pub zombie: bool,
}

impl Process {
    /// A process of which only the id is known.
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self {
            pid,
            own: pid == std::process::id(),
            ..Self::default()
        }
    }

    /// Sets [`bytes`](Self::bytes).
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

/// What a process uses a GPU for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProcessKind {
    /// CUDA, with a context of its own.
    Compute,
    /// Graphics.
    Graphics,
    /// CUDA, through the context of an MPS server.
    Mps,
}

impl fmt::Display for ProcessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Graphics => "graphics",
            Self::Mps => "MPS",
        })
    }
}

/// One entry of one of NVML's lists: pid and bytes.
pub(crate) type Listed = (u32, Option<u64>);

/// Merges lists of different kinds into one: each process once, those that hold most first, then by pid.
/// Those whose bytes are not known come last.
pub(crate) fn merge(lists: &[(ProcessKind, Vec<Listed>)]) -> Vec<Process> {
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for (kind, list) in lists {
        for (pid, bytes) in add_up(list) {
            let process = processes.entry(pid).or_insert_with(|| Process::new(pid));
            // A process that uses the GPU for compute and graphics is in two lists, with the same bytes.
            process.bytes = process.bytes.max(bytes);
            process.kinds.push(*kind);
            process.kinds.sort_unstable();
        }
    }
    let mut processes: Vec<Process> = processes.into_values().collect();
    processes.sort_by_key(|process| (Reverse(process.bytes), process.pid));
    processes
}

/// A process that uses several instances of a partitioned GPU (MIG) is in a list several times, each time
/// with what it holds there. If one of them is unknown, so is the sum.
fn add_up(list: &[Listed]) -> BTreeMap<u32, Option<u64>> {
    let mut sums = BTreeMap::new();
    for &(pid, bytes) in list {
        let sum = sums.entry(pid).or_insert(Some(0_u64));
        *sum = sum.zip(bytes).map(|(a, b)| a.saturating_add(b));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProcessKind::{Compute, Graphics, Mps};

    fn list(entries: &[(u32, Option<u64>)]) -> Vec<Listed> {
        entries.to_vec()
    }

    fn rows(processes: &[Process]) -> Vec<(u32, Option<u64>, &[ProcessKind])> {
        processes
            .iter()
            .map(|process| (process.pid, process.bytes, &*process.kinds))
            .collect()
    }

    #[test]
    fn a_process_in_two_lists_is_one_and_counts_once() {
        let merged = merge(&[
            (Graphics, list(&[(10, Some(5)), (11, Some(70))])),
            (Compute, list(&[(10, Some(5)), (12, Some(6))])),
            (Mps, list(&[])),
        ]);
        assert_eq!(
            rows(&merged),
            [
                (11, Some(70), &[Graphics][..]),
                (12, Some(6), &[Compute]),
                (10, Some(5), &[Compute, Graphics]),
            ]
        );
    }

    #[test]
    fn a_process_twice_in_one_list_holds_the_sum() {
        let merged = merge(&[(Compute, list(&[(7, Some(1)), (7, Some(2)), (8, Some(3))]))]);
        assert_eq!(
            rows(&merged),
            [(7, Some(3), &[Compute][..]), (8, Some(3), &[Compute])]
        );
    }

    #[test]
    fn the_unknown_stays_unknown_and_comes_last() {
        let merged = merge(&[
            (
                Compute,
                list(&[(1, None), (2, Some(0)), (3, Some(9)), (3, None)]),
            ),
            // What is unknown in one list, another may have.
            (Mps, list(&[(4, Some(1)), (3, None)])),
            (Graphics, list(&[(4, None)])),
        ]);
        assert_eq!(
            rows(&merged),
            [
                (4, Some(1), &[Graphics, Mps][..]),
                (2, Some(0), &[Compute]),
                (1, None, &[Compute]),
                (3, None, &[Compute, Mps]),
            ]
        );
    }

    #[test]
    fn pid_zero_and_this_process() {
        let own = std::process::id();
        let merged = merge(&[(
            Compute,
            list(&[(0, Some(1)), (own, Some(u64::MAX)), (own, Some(1))]),
        )]);
        assert_eq!((merged[0].pid, merged[0].bytes), (own, Some(u64::MAX)));
        assert!(merged[0].own);
        assert_eq!(merged[1].pid, 0);
        assert!(!merged[1].own && !merged[1].visible);
    }
}
