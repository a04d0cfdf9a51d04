//! The diagnosis as JSON: one object on one line. `docs/out-of-memory-schema.md` is its schema.

use cuguard_registry::SiteUsage;
use serde_json::{Value, json};

use super::facts::{KindUsage, OutOfMemory};
use super::others::Processes;
use super::verdict::Cause;
use crate::json::{amount, list, seconds, site};

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
            Processes::Unknown(reason) => (Value::Null, reason.as_str().into()),
            Processes::Known(all) => (list(all, |one| self.process(one)), Value::Null),
        };
        let pools = list(&self.pools, |pool| {
            json!({
                "name": pool.name,
                "reserved": pool.reserved,
                "used": pool.used,
                "threshold": pool.threshold,
            })
        });
        let other_contexts = list(&self.contexts, |context| {
            json!({
                "id": context.number,
                "bytes": context.bytes,
                "pooled": context.pooled,
                "pooled_blocks": context.pooled_blocks,
                "taken": context.taken,
                "managed": context.managed,
                "given_away": context.given_away,
                "pooled_given_away": context.pooled_given_away,
            })
        });
        let attempts = list(&self.attempts, |attempt| {
            json!({
                "step": attempt.step.name(),
                "allowed": attempt.allowed,
                "tried": attempt.tried,
                "freed": attempt.freed,
            })
        });
        json!({
            "version": VERSION,
            "tool": "cuguard",
            "tool_version": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "asked": {
                "operation": asked.operation,
                "bytes": asked.bytes,
                "kind": asked.kind.map(|kind| kind.name()),
                "site": site(asked.site),
                "thread": asked.thread,
                "function": asked.function,
                "code": asked.code,
                "code_name": asked.code_name,
            },
            "causes": list(&self.causes(), cause),
            "advice": self.advice(),
            "device": {
                "ordinal": info.device,
                "name": info.device_name,
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
        })
        .to_string()
    }

    fn context(&self) -> Value {
        let (settings, limit, pages) = (&self.settings, self.limit, self.pages);
        let usage = |usage: &KindUsage| amount(usage.kind, usage.amount);
        json!({
            "id": self.info.context,
            "primary": self.info.primary,
            "level": settings.level.to_string(),
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
        })
    }

    fn process(&self, process: &super::others::ProcessUse) -> Value {
        json!({
            "pid": process.pid,
            "name": process.name,
            "bytes": process.bytes,
            "own": process.own,
            "may_be_own": self.may_be_own(process),
        })
    }
}

fn cause(cause: &Cause) -> Value {
    let mut value = json!({"cause": cause.name(), "bytes": cause.bytes()});
    match cause {
        Cause::OtherProcesses { pids, .. } => value["pids"] = json!(pids),
        Cause::PendingFrees { streams, .. } => value["streams"] = json!(streams),
        Cause::Fragmentation { pages, .. } => value["pages"] = json!(pages),
        Cause::OwnData { grows, .. } => value["grows"] = json!(grows),
        _ => {}
    }
    value
}

fn holder(holder: &SiteUsage) -> Value {
    let group = &holder.group;
    json!({
        "kind": group.kind.name(),
        "type": group.type_name,
        "label": group.label,
        "count": group.amount.count,
        "bytes": group.amount.bytes,
        "site": site(group.origin.site),
        "oldest_seconds": seconds(group.oldest),
        "youngest_seconds": seconds(group.youngest),
        "growth": holder.growth,
        "quarters": holder.quarters,
        "grows": holder.grows(),
        "small_pages": holder.small_pages,
    })
}
