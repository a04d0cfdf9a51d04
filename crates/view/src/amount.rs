//! How much: a count and bytes.

use std::ops::AddAssign;

/// How many resources, and their bytes together.
///
/// ```
/// use cuguard_view::Amount;
///
/// let mut sum = Amount { count: 1, bytes: 4 };
/// sum += Amount { count: 2, bytes: 8 };
/// assert_eq!(sum, Amount { count: 3, bytes: 12 });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// How many, memory and handles.
    pub count: u64,
    /// The bytes of memory. Handles and reserved address ranges have none.
    pub bytes: u64,
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        // A broken recording can have any sizes.
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl FromIterator<Self> for Amount {
    fn from_iter<I: IntoIterator<Item = Self>>(amounts: I) -> Self {
        let mut sum = Self::default();
        for amount in amounts {
            sum += amount;
        }
        sum
    }
}
