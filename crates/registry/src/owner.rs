//! Who owns a resource under a key [by address](crate::Key::by_address), and the device that it is on.

/// The context that owns a resource, if one does, and the device that it is on, where that is known: in one word, which a
/// record has anyway.
///
/// ```
/// use cuguard_registry::Owner;
///
/// let owner = Owner::context(7).on(Some(1));
/// assert_eq!((owner.number(), owner.device()), (7, Some(1)));
/// // Stream-ordered memory: no context owns it.
/// assert_eq!((Owner::default().number(), Owner::default().device()), (0, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub(crate) u32);

/// The bits of the context's number. Above them is the device: its ordinal and 1, or 0.
const NUMBER_BITS: u32 = 24;
const NUMBER: u32 = (1 << NUMBER_BITS) - 1;

/// How many slots devices have: one for each ordinal that fits, and the first for unknown ones.
pub(crate) const DEVICE_SLOTS: usize = 1 << (u32::BITS - NUMBER_BITS);

impl Owner {
    /// A context, by its number; 0 is none. Numbers of more than 24 bits are none as well.
    #[must_use]
    pub const fn context(number: u32) -> Self {
        Self(if number <= NUMBER { number } else { 0 })
    }

    /// The same on a device, by its ordinal. Ordinals from 255 on are unknown.
    #[must_use]
    pub const fn on(self, device: Option<u32>) -> Self {
        let slot = match device {
            Some(device) if (device as usize) < DEVICE_SLOTS - 1 => device + 1,
            _ => 0,
        };
        Self(self.0 & NUMBER | slot << NUMBER_BITS)
    }

    /// The number of the context; 0 for none.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & NUMBER
    }

    /// The ordinal of the device.
    #[must_use]
    pub const fn device(self) -> Option<u32> {
        (self.0 >> NUMBER_BITS).checked_sub(1)
    }

    /// Of the device, in arrays of [`DEVICE_SLOTS`].
    pub(crate) const fn device_slot(self) -> usize {
        (self.0 >> NUMBER_BITS) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Owner;

    #[test]
    fn what_does_not_fit_is_unknown() {
        let owner = Owner::context(u32::MAX).on(Some(255));
        assert_eq!((owner.number(), owner.device()), (0, None));
        let owner = Owner::context((1 << 24) - 1).on(Some(254)).on(Some(0));
        assert_eq!((owner.number(), owner.device()), ((1 << 24) - 1, Some(0)));
    }
}
