//! Where an address was found: rank and address in one word, so that the smaller says more in a report.

/// What a place is worth in a report: the smaller, the more it says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(super) enum Rank {
    Global = 0,
    ThreadLocal,
    Heap,
    Mapping,
    Stack,
    Register,
}

const ADDRESS_BITS: u32 = 56;

/// A rank and an address; for a register the thread's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Spot(u64);

impl Spot {
    /// The word of no place, which is greater than all others.
    pub(super) const NONE: u64 = u64::MAX;

    pub(super) fn new(rank: Rank, address: u64) -> Spot {
        Spot((rank as u64) << ADDRESS_BITS | address)
    }

    pub(super) fn from_word(word: u64) -> Option<Spot> {
        (word >> ADDRESS_BITS <= Rank::Register as u64).then_some(Spot(word))
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn rank(self) -> Rank {
        match self.0 >> ADDRESS_BITS {
            0 => Rank::Global,
            1 => Rank::ThreadLocal,
            2 => Rank::Heap,
            3 => Rank::Mapping,
            4 => Rank::Stack,
            _ => Rank::Register,
        }
    }

    pub(super) fn address(self) -> u64 {
        self.0 & ((1 << ADDRESS_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Rank, Spot};

    #[test]
    fn a_rank_and_an_address_are_one_word() {
        let ranks = [
            Rank::Global,
            Rank::ThreadLocal,
            Rank::Heap,
            Rank::Mapping,
            Rank::Stack,
            Rank::Register,
        ];
        let spots = ranks.map(|rank| Spot::new(rank, 0x7fff_1234_5678));
        for (rank, spot) in ranks.into_iter().zip(spots) {
            assert_eq!((spot.rank(), spot.address()), (rank, 0x7fff_1234_5678));
            assert_eq!(Spot::from_word(spot.word()), Some(spot));
        }
        assert!(spots.is_sorted() && spots[5].word() < Spot::NONE);
        assert_eq!(Spot::from_word(Spot::NONE), None);
    }
}
