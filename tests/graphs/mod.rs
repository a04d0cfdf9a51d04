//! Graphs: captured work that borrows what it uses, executables, launches, updates.

mod capture;
mod launch;
mod teardown;
mod update;

use cuguard::{Context, Kind};

const LEN: usize = 10_000;

fn counts(context: &Context) -> (u64, u64) {
    let count = |kind| context.totals(kind).count;
    (count(Kind::Graph), count(Kind::GraphExec))
}
