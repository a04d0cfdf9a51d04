//! Processes that use a GPU, and how NVML's lists of them become one.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

/// A process that uses a GPU. What is not known is `None`.
///
/// ```
/// use cuguard_machine::{Process, ProcessKind};
///
/// let mut process = Process::new(4711).with_bytes(1 << 30);
/// process.kinds.push(ProcessKind::Compute);
/// assert!(!process.own);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its number, as NVML gives it. In a container it may be the number on the host, or 0.
    pub pid: u32,
    /// The device memory that it holds. On some systems NVML does not know.
    pub bytes: Option<u64>,
    /// What it uses the GPU for, each kind once, in the order of [`ProcessKind`].
    pub kinds: Vec<ProcessKind>,
    /// The name of the program.
    pub name: Option<String>,
    /// Its command line, as far as one may read it: on one line, without control characters, cut to
    /// [`COMMAND_LENGTH`](crate::COMMAND_LENGTH) characters.
    pub command: Option<String>,
    /// The number of the user it belongs to.
    pub uid: Option<u32>,
    /// That user's name, where the machine has it in `/etc/passwd`.
    pub user: Option<String>,
    /// Whether it is this process.
    pub own: bool,
    /// Whether this machine's `/proc` has it. Where not, it lives in another container or has
    /// ended.
    pub visible: bool,
    /// Whether it has ended and waits for its parent to notice (a zombie).
    pub zombie: bool,
}

impl Process {
    /// A process of which nothing is known but its number.
    ///
    /// ```
    /// let process = cuguard_machine::Process::new(std::process::id());
    /// assert!(process.own);
    /// assert_eq!(process.bytes, None);
    /// ```
    #[must_use]
    pub fn new(pid: u32) -> Self {
        Self {
            pid,
            own: pid == std::process::id(),
            ..Self::default()
        }
    }

    /// The same process with what it holds.
    ///
    /// ```
    /// let process = cuguard_machine::Process::new(4711).with_bytes(1 << 20);
    /// assert_eq!(process.bytes, Some(1 << 20));
    /// ```
    #[must_use]
    pub fn with_bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }
}

/// What a process uses a GPU for.
///
/// ```
/// assert_eq!(cuguard_machine::ProcessKind::Compute.to_string(), "compute");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProcessKind {
    /// CUDA, with a context of its own.
    Compute,
    /// Drawing.
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

/// One line of one of NVML's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pid: u32,
    pub(crate) bytes: Option<u64>,
}

/// One list of all: each process once, those that hold most first, then by number. Those whose
/// bytes are not known come last.
pub(crate) fn merge(lists: &[(ProcessKind, Vec<Listed>)]) -> Vec<Process> {
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for (kind, list) in lists {
        for (pid, bytes) in add_up(list) {
            let process = processes.entry(pid).or_insert_with(|| Process::new(pid));
            // A process that computes and draws is in two lists, with the same bytes in both.
            process.bytes = process.bytes.max(bytes);
            if !process.kinds.contains(kind) {
                process.kinds.push(*kind);
            }
        }
    }
    let mut processes: Vec<Process> = processes.into_values().collect();
    for process in &mut processes {
        process.kinds.sort_unstable();
    }
    sort(&mut processes);
    processes
}

/// A process is in one list several times when it works on several instances of a GPU that is cut
/// into pieces, and each time with what it holds there. One unknown leaves the sum unknown.
fn add_up(list: &[Listed]) -> BTreeMap<u32, Option<u64>> {
    let mut sums = BTreeMap::new();
    for listed in list {
        let sum = sums.entry(listed.pid).or_insert(Some(0_u64));
        *sum = sum
            .zip(listed.bytes)
            .map(|(sum, bytes)| sum.saturating_add(bytes));
    }
    sums
}

fn sort(processes: &mut [Process]) {
    processes.sort_by_key(|process| (Reverse(process.bytes), process.pid));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProcessKind::{Compute, Graphics, Mps};

    fn list(entries: &[(u32, Option<u64>)]) -> Vec<Listed> {
        let listed = |(pid, bytes)| Listed { pid, bytes };
        entries.iter().copied().map(listed).collect()
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
            // What one list does not say, another may.
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
