//! Which frame a call site is named after: the innermost one of the program that is not an allocation helper.
//!
//! Where a program allocates through a function of its own, such as `checked_alloc` or `Tensor.__init__`, all call sites have that
//! function innermost. A function is an *allocation helper* if it is called from more places than it has lines that allocate, of those
//! call sites that are looked at together. A helper is looked through: its caller may be another one.
//!
//! What a frame is, the caller decides: this file only compares them.

use std::collections::{BTreeMap, BTreeSet};

/// How many helpers are looked through.
const HELPERS: usize = 8;

/// The index of the frame that each stack trace is named after. Each frame is a function and a line of it, the innermost first;
/// frames of libraries are not among them.
///
/// ```
/// use cuguard_registry::naming_frames;
///
/// let stacks = [
///     vec![("checked_alloc", 7), ("load", 20), ("main", 40)],
///     vec![("checked_alloc", 7), ("train", 30), ("main", 41)],
///     vec![("train", 31), ("main", 41)],
/// ];
/// // `checked_alloc` allocates in one line and is called from two; `train` allocates in two and is called from one.
/// assert_eq!(naming_frames(&stacks), [1, 1, 0]);
/// ```
#[must_use]
pub fn naming_frames<F: Ord, L: Ord>(stacks: &[Vec<(F, L)>]) -> Vec<usize> {
    let mut names = vec![0; stacks.len()];
    name(stacks, (0..stacks.len()).collect(), 0, &mut names);
    names
}

/// Names those of `members` that have a frame at `depth`.
fn name<F: Ord, L: Ord>(
    stacks: &[Vec<(F, L)>],
    members: Vec<usize>,
    depth: usize,
    names: &mut [usize],
) {
    let mut by_function: BTreeMap<&F, Vec<usize>> = BTreeMap::new();
    for member in members {
        if let Some((function, _)) = stacks[member].get(depth) {
            names[member] = depth;
            by_function.entry(function).or_default().push(member);
        }
    }
    for members in by_function.into_values() {
        // What the members have in common tells nothing: their first frames that differ decide.
        let mut at = depth;
        while at < HELPERS {
            let lines: BTreeSet<&L> = members.iter().map(|it| &stacks[*it][at].1).collect();
            let function = &stacks[members[0]][at].0;
            let callers = members.iter().filter_map(|it| stacks[*it].get(at + 1));
            // A function that calls itself is not a caller that tells anything.
            let callers = callers.filter(|(caller, _)| caller != function);
            let distinct: BTreeSet<&(F, L)> = callers.clone().collect();
            if distinct.len() > lines.len() {
                name(stacks, members, at + 1, names);
                break;
            }
            if distinct.len() != 1 || callers.count() != members.len() {
                break;
            }
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::naming_frames;

    /// Frames such as `alloc:7`, the innermost first.
    fn names(stacks: &[&str]) -> Vec<String> {
        let frame = |frame: &str| {
            let (function, line) = frame.split_once(':').unwrap();
            (function.to_owned(), line.to_owned())
        };
        let stacks: Vec<Vec<_>> = stacks
            .iter()
            .map(|stack| stack.split_whitespace().map(frame).collect())
            .collect();
        let names = naming_frames(&stacks).into_iter().zip(&stacks);
        names
            .map(|(name, stack)| match stack.get(name) {
                Some((function, line)) => format!("{function}:{line}"),
                None => String::new(),
            })
            .collect()
    }

    #[test]
    fn a_helper_is_looked_through() {
        assert_eq!(
            names(&[
                "alloc:7 load:1 main:9",
                "alloc:7 load:2 main:9",
                "alloc:7 train:3 main:10"
            ]),
            ["load:1", "load:2", "train:3"]
        );
        // So are two of them.
        assert_eq!(
            names(&[
                "malloc:3 alloc:7 load:1",
                "malloc:3 alloc:7 train:1",
                "malloc:3 zeroed:8 eval:1"
            ]),
            ["load:1", "train:1", "zeroed:8"]
        );
    }

    #[test]
    fn a_function_with_several_lines_is_none() {
        let stacks = ["load:1 main:9", "load:2 main:9", "load:2 reload:4"];
        assert_eq!(names(&stacks), ["load:1", "load:2", "load:2"]);
        assert_eq!(names(&["load:1 main:9"]), ["load:1"]);
        // Its only caller tells nothing.
        assert_eq!(names(&["load:1 main:9", "load:1 main:9"]), ["load:1"; 2]);
    }

    #[test]
    fn recursion_tells_nothing() {
        let stacks = ["build:5 build:6 build:7 main:1", "build:5 main:1"];
        assert_eq!(names(&stacks), ["build:5"; 2]);
    }

    #[test]
    fn stacks_may_end_anywhere() {
        assert_eq!(
            names(&["alloc:7", "alloc:7 load:1", "alloc:7 train:2", ""]),
            ["alloc:7", "load:1", "train:2", ""]
        );
        let chain = |length: usize, last: &str| {
            let frames: Vec<_> = (0..length).map(|depth| format!("f{depth}:1")).collect();
            format!("{} {last}", frames.join(" "))
        };
        let both = |length| names(&[&chain(length, "a:1"), &chain(length, "b:1")]);
        assert_eq!(both(5), ["a:1", "b:1"]);
        assert_eq!(both(20), ["f0:1"; 2]);
    }
}
