//! What is live after each round of a test, and which call sites grow from round to round.

use std::collections::HashMap;
use std::time::Duration;

use crate::counters::Amount;
use crate::diff::{Change, Diff, alive};
use crate::growth::{SiteSteps, Steps, growth};
use crate::kind::ResourceKind;
use crate::origin::Origin;
use crate::snapshot::Snapshot;

/// What makes a group the same group after another round.
type Identity = (ResourceKind, &'static str, Option<String>, Origin);

/// What is live after each round of a test: before the first one, and after each.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::{Group, Snapshot};
/// use cuguard_registry::Rounds;
///
/// let mut rounds = Rounds::default();
/// for round in 0..5 {
///     let mut snapshot = Snapshot::default();
///     snapshot.live.push(Group::new(ResourceKind::Device, "f32", round, round * 400));
///     snapshot.live.push(Group::new(ResourceKind::Pinned, "u8", 1, 4096));
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
    /// does, call sites are looked at by line, and then without their labels: a leak may be reached on several ways, and have another
    /// label in each round.
    #[must_use]
    pub fn growth(&self) -> Diff {
        let line = |origin: &Origin| match origin.site {
            Some(_) => Origin {
                stack: &[],
                ..*origin
            },
            None => *origin,
        };
        let by_stack = self.growing(&self.groups);
        if !by_stack.is_empty() {
            return by_stack;
        }
        let by_line = self.growing(&self.merged(|(kind, type_name, label, origin)| {
            (*kind, *type_name, label.clone(), line(origin))
        }));
        if !by_line.is_empty() {
            return by_line;
        }
        self.growing(
            &self.merged(|(kind, type_name, _, origin)| (*kind, *type_name, None, line(origin))),
        )
    }

    /// The groups by another identity.
    fn merged(&self, identity: impl Fn(&Identity) -> Identity) -> HashMap<Identity, Vec<Amount>> {
        let mut merged: HashMap<Identity, Vec<Amount>> = HashMap::new();
        for (group, amounts) in &self.groups {
            let sums = merged.entry(identity(group)).or_default();
            sums.resize(self.count, Amount::default());
            for (sum, amount) in sums.iter_mut().zip(amounts) {
                *sum += *amount;
            }
        }
        merged
    }

    fn growing(&self, groups: &HashMap<Identity, Vec<Amount>>) -> Diff {
        let steps = Steps {
            times: vec![Duration::ZERO; self.count],
            work: vec![0; self.count],
            are_rounds: true,
            ..Steps::default()
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

#[cfg(test)]
mod tests {
    use super::Rounds;
    use crate::{Group, ResourceKind, Snapshot};

    #[test]
    fn labels_that_differ_in_each_round_do_not_hide_growth() {
        let mut rounds = Rounds::default();
        for round in 0..10 {
            let mut snapshot = Snapshot::default();
            for kept in 0..round {
                let mut group = Group::new(ResourceKind::Device, "f32", 1, 400);
                group.label = Some(format!("batch {kept}"));
                snapshot.live.push(group);
            }
            rounds.add(&snapshot);
        }
        let changes = rounds.growth().changes;
        assert_eq!((changes.len(), changes[0].after.count), (1, 9));
        assert_eq!(changes[0].label, None);
    }
}
