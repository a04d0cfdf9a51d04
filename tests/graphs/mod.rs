//! Graphs: captured work that borrows what it uses, executables, launches, updates.

mod capture;
mod launch;
mod teardown;
mod update;

use cuguard::{Context, ResourceKind};

const LEN: usize = 10_000;

fn counts(context: &Context) -> (u64, u64) {
    let count = |kind| context.totals(kind).count;
    (count(ResourceKind::Graph), count(ResourceKind::GraphExec))
}
