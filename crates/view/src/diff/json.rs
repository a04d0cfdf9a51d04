//! A difference as JSON; docs/recording-schema.md describes it.

use serde_json::{Value, json};

use super::Diff;
use crate::json_parts::{VERSION, amount, clamped, identity, seconds, stack};
use crate::look::Look;
use crate::moment::Moment;

impl Diff<'_> {
    /// As one JSON object on one line, with a line break.
    #[must_use]
    pub fn json(&self, look: Look) -> String {
        let shown = look
            .top
            .unwrap_or(self.changes.len())
            .min(self.changes.len());
        let changes = self.shown(shown).map(|change| {
            json!({
                "before": amount(change.before),
                "after": amount(change.after),
                "bytes": clamped(change.bytes()),
                "count": clamped(change.count()),
                "match": change.matched.name(),
                "stack": stack(change.site, look.frames),
            })
        });
        let document = json!({
            "version": VERSION,
            "tool": "cuguard-diff",
            "tool_version": env!("CARGO_PKG_VERSION"),
            "before": side(self.before),
            "after": side(self.after),
            "changes": changes.collect::<Value>(),
            "changes_not_shown": self.changes.len() - shown,
            "unchanged": {
                "call_sites": self.unchanged,
                "count": self.unchanged_amount.count,
                "bytes": self.unchanged_amount.bytes,
            },
        });
        format!("{document}\n")
    }
}

fn side(moment: &Moment<'_>) -> Value {
    let mut side = identity(moment.run);
    side["at"] = moment.at.to_string().into();
    side["seconds"] = seconds(moment.time).into();
    side["count"] = moment.total.count.into();
    side["bytes"] = moment.total.bytes.into();
    side["device_bytes"] = moment.device_bytes.into();
    side["caveats"] = moment.run.caveats().into();
    side
}
