//! The report as JSON: one object on one line; `docs/out-of-memory-schema.md` describes it.

use super::facts::{KindUsage, OutOfMemory};
use super::others::Processes;
use super::verdict::Cause;
use crate::Writer;
use cuguard_registry::SiteUsage;

/// The version of the schema. It changes when a member goes or changes its meaning.
const VERSION: u64 = 1;

impl OutOfMemory {
    /// The report as JSON: one object on one line. `docs/out-of-memory-schema.md` says what is in it.
    ///
    /// ```
    /// let json = cuguard::oom::OutOfMemory::default().to_json();
    /// assert!(json.starts_with(r#"{"version":1,"tool":"cuguard""#));
    /// ```
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut json = Writer::default();
        json.object(|json| {
            json.key("version").number(VERSION);
            json.key("tool").string("cuguard");
            json.key("tool_version").string(env!("CARGO_PKG_VERSION"));
            json.key("process").number(std::process::id().into());
            self.asked(json);
            json.key("causes").array(&self.causes(), |json, cause| {
                json.object(|json| {
                    json.key("cause").string(cause.name());
                    json.key("bytes").number(cause.bytes());
                    match cause {
                        Cause::OtherProcesses { pids, .. } => json
                            .key("pids")
                            .array(pids, |json, pid| json.number((*pid).into())),
                        Cause::PendingFrees { streams, .. } => json.key("streams").number(*streams),
                        Cause::Fragmentation { pages, .. } => json.key("pages").number(*pages),
                        Cause::OwnData { grows, .. } => json.key("grows").boolean(*grows),
                        _ => {}
                    }
                });
            });
            json.key("advice")
                .array(&self.advice(), |json, one| json.string(one));
            json.key("device").object(|json| {
                json.key("ordinal").number(self.info.device.into());
                json.key("name").string(&self.info.device_name);
                json.key("total").optional_number(self.total);
                json.key("free").optional_number(self.free);
                json.key("largest").optional_number(self.largest);
                let shares = self.shares();
                json.key("outside_guards").optional_number(shares.outside);
                json.key("unexplained").number(shares.rest);
                json.key("devices").number(self.settings.devices.into());
            });
            self.context(json);
            json.key("pools").array(&self.pools, |json, pool| {
                json.object(|json| {
                    json.key("name").string(&pool.name);
                    json.key("reserved").number(pool.reserved);
                    json.key("used").number(pool.used);
                    json.key("threshold").optional_number(pool.threshold);
                });
            });
            json.key("busy_streams").number(self.busy_streams);
            json.key("pending_bytes")
                .optional_number((self.pending_bytes != u64::MAX).then_some(self.pending_bytes));
            json.key("other_contexts")
                .array(&self.contexts, |json, context| {
                    json.object(|json| {
                        json.key("id").number(context.number);
                        json.key("bytes").number(context.bytes);
                        json.key("pooled").number(context.pooled);
                        json.key("pooled_blocks").number(context.pooled_blocks);
                        json.key("taken").optional_number(context.taken);
                        json.key("managed").number(context.managed);
                        json.key("given_away").number(context.given_away);
                        let pooled = context.pooled_given_away;
                        json.key("pooled_given_away").number(pooled);
                    });
                });
            self.processes(json);
            json.key("attempts").array(&self.attempts, |json, attempt| {
                json.object(|json| {
                    json.key("rung").string(attempt.rung.name());
                    json.key("allowed").boolean(attempt.allowed);
                    json.key("tried").boolean(attempt.tried);
                    json.key("freed").number(attempt.freed);
                });
            });
        });
        json.finish()
    }

    fn asked(&self, json: &mut Writer) {
        let asked = &self.asked;
        json.key("asked").object(|json| {
            json.key("operation").string(asked.operation);
            json.key("bytes").optional_number(asked.bytes);
            json.key("kind")
                .optional(asked.kind.map(|kind| kind.name()));
            json.key("site").site(asked.site);
            json.key("thread").optional(asked.thread.as_deref());
            json.key("function").optional(asked.function);
            json.key("code").number(asked.code.into());
            json.key("code_name").string(asked.code_name);
        });
    }

    fn context(&self, json: &mut Writer) {
        json.key("context").object(|json| {
            json.key("id").number(self.info.context);
            json.key("primary").boolean(self.info.primary);
            json.key("level").string(&self.settings.level.to_string());
            json.key("sample").number(self.settings.sample.into());
            json.key("has_checkpoint")
                .boolean(self.settings.has_checkpoint);
            json.key("callbacks").number(self.settings.callbacks);
            let limit = self.limit;
            json.key("limit")
                .optional_number(limit.map(|limit| limit.bytes));
            json.key("limit_held")
                .optional_number(limit.map(|limit| limit.held));
            json.key("limit_refused")
                .boolean(limit.is_some_and(|limit| limit.refused));
            json.key("held").array(&self.held, held);
            json.key("given_away").array(&self.given_away, held);
            let pages = self.pages;
            json.key("taken")
                .optional_number(pages.map(|pages| pages.taken()));
            json.key("pinned")
                .optional_number(pages.map(|pages| pages.pinned()));
            json.key("pinned_pages")
                .optional_number(pages.map(|pages| pages.small_pages));
            json.key("rounding")
                .optional_number(pages.map(|pages| pages.rounding()));
            json.key("holders").array(&self.holders, holder);
        });
    }

    fn processes(&self, json: &mut Writer) {
        match &self.processes {
            Processes::Unknown(reason) => {
                json.key("processes").optional(None);
                json.key("processes_unknown").string(reason);
            }
            Processes::Known(list) => {
                json.key("processes").array(list, |json, process| {
                    json.object(|json| {
                        json.key("pid").number(process.pid.into());
                        json.key("name").optional(process.name.as_deref());
                        json.key("bytes").optional_number(process.bytes);
                        json.key("own").boolean(process.own);
                        json.key("may_be_own").boolean(self.may_be_own(process));
                    });
                });
                json.key("processes_unknown").optional(None);
            }
        }
    }
}

fn held(json: &mut Writer, held: &KindUsage) {
    json.object(|json| {
        json.key("kind").string(held.kind.name());
        json.key("count").number(held.amount.count);
        json.key("bytes").number(held.amount.bytes);
    });
}

fn holder(json: &mut Writer, holder: &SiteUsage) {
    let group = &holder.group;
    json.object(|json| {
        json.key("kind").string(group.kind.name());
        json.key("type").string(group.type_name);
        json.key("label").optional(group.label.as_deref());
        json.key("count").number(group.amount.count);
        json.key("bytes").number(group.amount.bytes);
        json.key("site").site(group.origin.site);
        json.key("oldest_seconds").seconds(group.oldest);
        json.key("youngest_seconds").seconds(group.youngest);
        json.key("growth").signed(holder.growth);
        json.key("quarters")
            .array(&holder.quarters, |json, bytes| json.number(*bytes));
        json.key("grows").boolean(holder.grows());
        json.key("small_pages").number(holder.small_pages);
    });
}
