//! A call site of which two moments have different amounts.

use crate::run::CallSite;
use cuguard_registry::Amount;

/// A call site with a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<'r> {
    /// The call site, as the second run has it, or else the first.
    pub site: &'r CallSite,
    /// What it had in the first moment.
    pub before: Amount,
    /// What it had in the second.
    pub after: Amount,
    /// How the call sites of both were matched.
    pub matched: Match,
}

impl Change<'_> {
    /// The difference in bytes.
    ///
    /// ```
    /// use cuguard_view::{Amount, CallSite, Change, Match};
    ///
    /// let (before, after) = (Amount { count: 1, bytes: 8 }, Amount::default());
    /// let change = Change { site: &CallSite::default(), before, after, matched: Match::OnlyBefore };
    /// assert_eq!(change.bytes(), -8);
    /// ```
    #[must_use]
    pub fn bytes(&self) -> i128 {
        i128::from(self.after.bytes) - i128::from(self.before.bytes)
    }

    /// The difference in resources.
    #[must_use]
    pub fn count(&self) -> i128 {
        i128::from(self.after.count) - i128::from(self.before.count)
    }
}

/// How call sites of two runs were matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// Functions, files and lines are equal.
    Lines,
    /// Functions and files are equal; lines moved, and are in the same order.
    Order,
    /// Functions and files are equal; several call sites are summed up, as their lines changed.
    Functions,
    /// The first run alone has it.
    OnlyBefore,
    /// The second run alone has it.
    OnlyAfter,
}

impl Match {
    /// Its name in JSON.
    ///
    /// ```
    /// assert_eq!(cuguard_view::Match::OnlyAfter.name(), "only_after");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Order => "order",
            Self::Functions => "functions",
            Self::OnlyBefore => "only_before",
            Self::OnlyAfter => "only_after",
        }
    }
}
