//! The diagnosis as JSON: one object on one line. `docs/out-of-memory-schema.md` is its schema.

use cuguard_registry::SiteUsage;

use super::causes::Cause;
use super::facts::{KindUsage, OutOfMemory};
use super::others::Processes;
use crate::json::{amount, list, seconds, site};
use crate::json_value::{Value, object};

/// The version of the schema. It changes when a member is removed or changes its meaning.
const VERSION: u64 = 1;

impl OutOfMemory {
    /// The report as JSON: one object on one line. `docs/out-of-memory-schema.md` is its schema.
    ///
    /// ```
    /// let json = cuguard::oom::OutOfMemory::default().to_json();
    /// assert!(json.starts_with(r#"{"version":1,"tool":"cuguard""#));
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let (info, request, shares) = (&self.info, &self.request, self.shares());
        let (processes, processes_unknown) = match &self.processes {
            Processes::Unknown(reason) => (None, Some(reason.as_str())),
            Processes::Known(all) => (Some(list(all, |one| self.process(one))), None),
        };
        let pools = list(&self.pools, |pool| {
            object! {
                "name": pool.name.as_str(),
                "reserved": pool.reserved,
                "used": pool.used,
                "threshold": pool.threshold,
                "of_cuguard": pool.of_cuguard,
            }
        });
        let other_contexts = list(&self.contexts, |context| {
            object! {
                "id": context.number,
                "bytes": context.bytes,
                "pooled": context.pooled,
                "pooled_blocks": context.pooled_blocks,
                "taken": context.taken,
                "managed": context.managed,
                "escaped": context.escaped,
                "pooled_escaped": context.pooled_escaped,
            }
        });
        let recovery = list(&self.recovery, |result| {
            object! {
                "step": result.step.name(),
                "allowed": result.allowed,
                "tried": result.tried,
                "freed": result.freed,
            }
        });
        object! {
            "version": VERSION,
            "tool": "cuguard",
            "tool_version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "request": object! {
                "operation": request.operation,
                "bytes": request.bytes,
                "kind": request.kind.map(|kind| kind.name()),
                "site": site(request.site),
                "thread": request.thread.as_deref(),
                "function": request.function,
                "code": request.code,
                "code_name": request.code_name,
            },
            "causes": list(&self.causes(), cause),
            "advice": list(&self.advice(), |one| one.as_str().into()),
            "device": object! {
                "ordinal": info.device,
                "name": info.device_name.as_str(),
                "total": self.total,
                "free": self.free,
                "largest": self.largest,
                "outside_guards": shares.outside,
                "unexplained": shares.rest,
                "devices": self.settings.devices,
            },
            "context": self.context(),
            "pools": pools,
            "graphs": object! {
                "reserved": self.graphs.reserved,
                "used": self.graphs.used,
            },
            "busy_streams": self.busy_streams,
            "pending_bytes": (self.pending_bytes != u64::MAX).then_some(self.pending_bytes),
            "other_contexts": other_contexts,
            "processes": processes,
            "processes_unknown": processes_unknown,
            "recovery": recovery,
        }
        .to_string()
    }

    fn context(&self) -> Value {
        let (settings, limit, pages) = (&self.settings, self.limit, self.pages);
        let usage = |usage: &KindUsage| amount(usage.kind, usage.amount);
        object! {
            "id": self.info.context,
            "primary": self.info.primary,
            "level": settings.level.to_string().as_str(),
            "sample": settings.sample,
            "has_baseline": settings.has_baseline,
            "callbacks": settings.callbacks,
            "limit": limit.map(|limit| limit.bytes),
            "limit_held": limit.map(|limit| limit.held),
            "limit_refused": limit.is_some_and(|limit| limit.refused),
            "limit_of_pool": limit.is_some_and(|limit| limit.of_pool),
            "usage": list(&self.usage, usage),
            "escaped": list(&self.escaped, usage),
            "taken": pages.map(|pages| pages.taken()),
            "pinned": pages.map(|pages| pages.pinned()),
            "pinned_pages": pages.map(|pages| pages.small_pages),
            "rounding": pages.map(|pages| pages.rounding()),
            "call_sites": list(&self.call_sites, call_site),
        }
    }

    fn process(&self, process: &super::others::ProcessUse) -> Value {
        object! {
            "pid": process.pid,
            "name": process.name.as_deref(),
            "bytes": process.bytes,
            "own": process.own,
            "may_be_own": self.may_be_own(process),
        }
    }
}

fn cause(cause: &Cause) -> Value {
    let mut value = object! {"cause": cause.name(), "bytes": cause.bytes()};
    match cause {
        Cause::OtherProcesses { pids, .. } => value.push("pids", list(pids, |pid| (*pid).into())),
        Cause::ReservedForGraphs { lost, .. } => value.push("lost", *lost),
        Cause::PendingFrees { streams, .. } => value.push("streams", *streams),
        Cause::Fragmentation { pages, .. } => value.push("pages", *pages),
        Cause::OwnData { grows, .. } => value.push("grows", *grows),
        _ => {}
    }
    value
}

fn call_site(usage: &SiteUsage) -> Value {
    let group = &usage.group;
    object! {
        "kind": group.kind.name(),
        "type": group.type_name,
        "label": group.label.as_deref(),
        "count": group.amount.count,
        "bytes": group.amount.bytes,
        "site": site(group.origin.site),
        "oldest_seconds": seconds(group.oldest),
        "youngest_seconds": seconds(group.youngest),
        "growth": usage.growth,
        "grows": usage.grows(),
        "small_pages": usage.small_pages,
    }
}
