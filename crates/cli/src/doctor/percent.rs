//! Shares as a person reads them.

/// How much `part` is of `whole`, in per cent, rounded down: 100 is all of it.
pub(super) fn percent(part: u64, whole: u64) -> u64 {
    match whole {
        0 => 0,
        whole => (u128::from(part) * 100 / u128::from(whole)) as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_all_of_it_is_a_hundred_per_cent() {
        assert_eq!(percent(999, 1000), 99);
        assert_eq!(percent(1000, 1000), 100);
        assert_eq!(percent(u64::MAX, u64::MAX), 100);
        assert_eq!(percent(1, 0), 0);
    }
}
