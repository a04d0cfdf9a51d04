//! The diagnosis as JSON: one object on one line. `docs/out-of-memory-schema.md` is its schema.

use cuguard_registry::SiteUsage;

use super::facts::{KindUsage, OutOfMemory};
use super::others::Processes;
use super::verdict::Cause;
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
        let (info, asked, shares) = (&self.info, &self.asked, self.shares());
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
                "given_away": context.given_away,
                "pooled_given_away": context.pooled_given_away,
            }
        });
        let attempts = list(&self.attempts, |attempt| {
            object! {
                "step": attempt.step.name(),
                "allowed": attempt.allowed,
                "tried": attempt.tried,
                "freed": attempt.freed,
            }
        });
        object! {
            "version": VERSION,
            "tool": "cuguard",
            "tool_version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "asked": object! {
                "operation": asked.operation,
                "bytes": asked.bytes,
                "kind": asked.kind.map(|kind| kind.name()),
                "site": site(asked.site),
                "thread": asked.thread.as_deref(),
                "function": asked.function,
                "code": asked.code,
                "code_name": asked.code_name,
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
            "busy_streams": self.busy_streams,
            "pending_bytes": (self.pending_bytes != u64::MAX).then_some(self.pending_bytes),
            "other_contexts": other_contexts,
            "processes": processes,
            "processes_unknown": processes_unknown,
            "attempts": attempts,
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
            "has_checkpoint": settings.has_checkpoint,
            "callbacks": settings.callbacks,
            "limit": limit.map(|limit| limit.bytes),
            "limit_held": limit.map(|limit| limit.held),
            "limit_refused": limit.is_some_and(|limit| limit.refused),
            "held": list(&self.held, usage),
            "given_away": list(&self.given_away, usage),
            "taken": pages.map(|pages| pages.taken()),
            "pinned": pages.map(|pages| pages.pinned()),
            "pinned_pages": pages.map(|pages| pages.small_pages),
            "rounding": pages.map(|pages| pages.rounding()),
            "holders": list(&self.holders, holder),
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
        Cause::PendingFrees { streams, .. } => value.push("streams", *streams),
        Cause::Fragmentation { pages, .. } => value.push("pages", *pages),
        Cause::OwnData { grows, .. } => value.push("grows", *grows),
        _ => {}
    }
    value
}

fn holder(holder: &SiteUsage) -> Value {
    let group = &holder.group;
    object! {
        "kind": group.kind.name(),
        "type": group.type_name,
        "label": group.label.as_deref(),
        "count": group.amount.count,
        "bytes": group.amount.bytes,
        "site": site(group.origin.site),
        "oldest_seconds": seconds(group.oldest),
        "youngest_seconds": seconds(group.youngest),
        "growth": holder.growth,
        "quarters": list(&holder.quarters, |bytes| (*bytes).into()),
        "grows": holder.grows(),
        "small_pages": holder.small_pages,
    }
}
