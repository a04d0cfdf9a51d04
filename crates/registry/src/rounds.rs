//! What is live after each round of a test, and which call sites grow from round to round.

use std::collections::HashMap;
use std::time::Duration;

use crate::counters::Amount;
use crate::diff::{Change, Diff, alive};
use crate::growth::{SiteSteps, Steps, growth};
use crate::kind::Kind;
use crate::origin::Origin;
use crate::snapshot::Snapshot;

/// What makes a group the same group after another round.
type Identity = (Kind, &'static str, Option<String>, Origin);

/// What is live after each round of a test: before the first one, and after each.
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::{Group, Snapshot};
/// use cuguard_registry::Rounds;
///
/// let mut rounds = Rounds::default();
/// for round in 0..5 {
///     let mut snapshot = Snapshot::default();
///     snapshot.live.push(Group::new(Kind::Device, "f32", round, round * 400));
///     snapshot.live.push(Group::new(Kind::Pinned, "u8", 1, 4096));
///     rounds.add(&snapshot);
/// }
/// let changes = rounds.growth().changes;
/// assert_eq!((changes.len(), changes[0].after.bytes), (1, 1600));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Rounds {
    count: usize,
    groups: HashMap<Identity, Vec<Amount>>,
}

impl Rounds {
    /// Adds what is live now.
    pub fn add(&mut self, snapshot: &Snapshot) {
        for ((kind, type_name, label, origin), amount) in alive(snapshot) {
            let identity = (kind, type_name, label.map(str::to_owned), origin);
            let amounts = self.groups.entry(identity).or_default();
            amounts.resize(self.count + 1, Amount::default());
            amounts[self.count] += amount;
        }
        self.count += 1;
        for amounts in self.groups.values_mut() {
            amounts.resize(self.count, Amount::default());
        }
    }

    /// The groups that grow, in number or in bytes, with what they were before the first round and are now. Where no stack trace
    /// does, call sites are looked at by line: a leak may be reached on several ways.
    #[must_use]
    pub fn growth(&self) -> Diff {
        let by_stack = self.growing(&self.groups);
        if !by_stack.changes.is_empty() {
            return by_stack;
        }
        let mut lines: HashMap<Identity, Vec<Amount>> = HashMap::new();
        for ((kind, type_name, label, origin), amounts) in &self.groups {
            let origin = match origin.site {
                Some(_) => Origin {
                    stack: &[],
                    ..*origin
                },
                None => *origin,
            };
            let identity = (*kind, *type_name, label.clone(), origin);
            let sums = lines.entry(identity).or_default();
            sums.resize(self.count, Amount::default());
            for (sum, amount) in sums.iter_mut().zip(amounts) {
                *sum += *amount;
            }
        }
        self.growing(&lines)
    }

    fn growing(&self, groups: &HashMap<Identity, Vec<Amount>>) -> Diff {
        let steps = Steps {
            times: vec![Duration::ZERO; self.count],
            work: vec![0; self.count],
            are_rounds: true,
        };
        let grows = |amounts: &[Amount], figure: fn(&Amount) -> u64| {
            let site = SiteSteps {
                live: amounts.iter().map(figure).collect(),
                ..SiteSteps::default()
            };
            growth(&steps, &site).rise().is_some()
        };
        let growing = groups.iter().filter(|(_, amounts)| {
            grows(amounts, |amount| amount.count) || grows(amounts, |amount| amount.bytes)
        });
        let changes = growing.map(|((kind, type_name, label, origin), amounts)| Change {
            kind: *kind,
            type_name,
            label: label.clone(),
            origin: *origin,
            before: amounts.first().copied().unwrap_or_default(),
            after: amounts.last().copied().unwrap_or_default(),
        });
        Diff::sorted(changes.collect())
    }
}
