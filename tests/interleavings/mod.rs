//! Every order in which threads can run, for the protocols that threads depend on: the gate of a
//! context (crates/sync/src/gate.rs, with crates/sync/src/fence.rs and src/exit.rs); invariant 2, the
//! order of registry and driver (src/core/owned/owned_resource.rs); invariant 4, which thread tears a context
//! down (src/core/open_context.rs); the newest records of a thread (crates/registry/src/recent.rs),
//! which their owner changes without a lock. src/core/mod.rs lists the invariants.
//!
//! They are modelled in steps that happen at once, and an explorer takes every step of every
//! thread in every state there is. Each model is also explored with a mistake in it that must be
//! found: as the proof that the explorer sees what it is there for.

mod lifetime;
mod order;
mod processor;
mod slots;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;

/// Something that goes on in steps.
trait Model: Clone + Eq + Hash + Debug {
    /// What can happen next.
    fn next(&self) -> Vec<Self>;
    /// What must never be, if it is so in this state.
    fn wrong(&self) -> Option<&'static str>;
    /// Everybody has come to the end.
    fn is_over(&self) -> bool;
}

/// Goes through all states, and answers how many there are, or what was wrong in one of them. From
/// each state there must be a way to the end: nobody waits for ever.
fn explore<M: Model>(start: M) -> Result<usize, &'static str> {
    let mut numbers = HashMap::from([(start.clone(), 0)]);
    let mut before: Vec<Vec<usize>> = vec![Vec::new()];
    let (mut over, mut to_do) = (Vec::new(), vec![(start, 0)]);
    while let Some((state, number)) = to_do.pop() {
        if let Some(wrong) = state.wrong() {
            return Err(wrong);
        }
        if state.is_over() {
            over.push(number);
        }
        for next in state.next() {
            let new = numbers.len();
            let known = *numbers.entry(next.clone()).or_insert(new);
            if known == new {
                before.push(Vec::new());
                to_do.push((next, new));
            }
            before[known].push(number);
        }
    }
    let mut ends = vec![false; numbers.len()];
    while let Some(number) = over.pop() {
        if !std::mem::replace(&mut ends[number], true) {
            over.extend(&before[number]);
        }
    }
    if ends.contains(&false) {
        return Err("somebody waits for ever");
    }
    Ok(numbers.len())
}

/// The models are of what is in the sources: the steps that matter stand there in this order. Who
/// changes them there changes the models too.
#[test]
fn the_sources_are_as_modelled() {
    let steps = [
        (
            include_str!("../../src/core/teardown/tear_down.rs"),
            "fn tear_down",
            &[
                "gate.close()",
                "enter_closed()",
                "is_exiting()",
                "self.push",
                "finish()",
            ][..],
        ),
        (
            include_str!("../../src/exit.rs"),
            "fn end()",
            &["begin_exit()", "fence::heavy()", "drain(", "report_once()"],
        ),
        (
            include_str!("../../src/core/owned/owned_resource.rs"),
            "fn try_free_now",
            &["try_enter()", "registry.remove", "self.free_on("],
        ),
        (
            include_str!("../../src/core/owned/owned_resource.rs"),
            "fn release(",
            &["enter_any_context", "registry.remove", "self.free()"],
        ),
        (
            include_str!("../../src/core/owned/owned_resource.rs"),
            "fn defer(",
            &["set_deferred", "owner().clone()", "deferred::push"],
        ),
        (
            include_str!("../../src/guards/context.rs"),
            "fn drop(&mut self)",
            &["is_closed()", "drop_callbacks()", "note_dropped()"],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn own_buffer(",
            &["busy.store(true", "fence::light()", "state.load"],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn insert(",
            &["self.own(key)", "own.push("],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn push(",
            &["buffer.get(", "table(old", "buffer.put("],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn remove(",
            &[
                "self.own(key)",
                "not_own(key)",
                "own.remove(",
                "Removed::InTable",
            ],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn erase(",
            &["self.own(key)", "own.remove("],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn remove<",
            &["read(index)", "store(0"],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn flush(",
            &[
                "self.own_buffer()",
                "self.lock()",
                "== OFF",
                "store(WANTED",
                "fence::heavy()",
                "empty_when_idle(",
            ],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn flush_all(",
            &[
                "self.lock()",
                "store(WANTED",
                "fence::heavy()",
                "empty_when_idle(",
            ],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn empty_when_idle(",
            &["wait_while(&self.busy)", "self.empty(", "state.store"],
        ),
        (
            include_str!("../../crates/registry/src/recent.rs"),
            "fn empty(",
            &["self.get(", "table(key", "store(0"],
        ),
        (
            include_str!("../../crates/registry/src/registry.rs"),
            "fn find_and_remove(",
            &["table.remove", "flushed_because(Reason::Free, key).remove"],
        ),
    ];
    for (source, function, steps) in steps {
        let begin = source.find(function).expect(function);
        // It ends with a brace that is as far to the right as its first line.
        let line = source[..begin].rfind('\n').map_or(0, |at| at + 1);
        let indent = source[line..].find(|c| c != ' ').unwrap_or(0);
        let end = format!("\n{}}}\n", " ".repeat(indent));
        let mut rest = &source[begin + function.len()..];
        rest = &rest[..rest.find(&end).expect("its end")];
        for step in steps {
            let at = rest.find(step);
            let at = at.unwrap_or_else(|| panic!("{function}: no {step} where it was"));
            rest = &rest[at + step.len()..];
        }
    }
}
