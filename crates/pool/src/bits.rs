//! A set of slot numbers.

#[derive(Debug)]
pub(crate) struct Bits(Box<[u64]>);

impl Bits {
    pub(crate) fn new(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)].into())
    }

    pub(crate) fn has(&self, at: u16) -> bool {
        let at = usize::from(at);
        self.0
            .get(at / 64)
            .is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(crate) fn set(&mut self, at: u16) {
        self.0[usize::from(at) / 64] |= 1 << (at % 64);
    }

    pub(crate) fn clear(&mut self, at: u16) {
        self.0[usize::from(at) / 64] &= !(1 << (at % 64));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|&word| word == 0)
    }

    /// Whether one of `first..=last` is in the set.
    pub(crate) fn any(&self, first: usize, last: usize) -> bool {
        (first / 64..=(last / 64).min(self.0.len() - 1)).any(|word| {
            let base = word * 64;
            let low = first.saturating_sub(base);
            let high = (last - base).min(63);
            let range = (u64::MAX >> (63 - high)) & (u64::MAX << low);
            self.0[word] & range != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_numbers() {
        let mut bits = Bits::new(130);
        assert!(bits.is_empty() && !bits.any(0, 129));
        bits.set(64);
        bits.set(129);
        assert!(bits.has(129) && !bits.has(128) && !bits.has(1000));
        assert!(
            bits.any(64, 64)
                && bits.any(0, 64)
                && bits.any(3, 200)
                && !bits.any(0, 63)
                && !bits.any(65, 128)
        );
        bits.clear(64);
        assert!(!bits.any(0, 128) && bits.any(0, 129));
    }
}
