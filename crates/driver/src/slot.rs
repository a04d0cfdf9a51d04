//! The numbers of the driver's functions in the table.

macro_rules! slots {
    ($($name:ident)*) => {
        /// The number of a function in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Slot {
            $($name),*
        }

        impl Slot {
            /// All slots, in the order of the table.
            pub(crate) const ALL: [Slot; COUNT] = [$(Slot::$name),*];
        }
    };
}

/// How many functions there are.
pub(crate) const COUNT: usize = cuguard_sys::FUNCTIONS.len();

cuguard_sys::with_names!(slots);

impl Slot {
    /// The function's name.
    pub(crate) fn name(self) -> &'static str {
        cuguard_sys::FUNCTIONS[self as usize].name
    }

    /// Whether the function loads a driver when it is called before there is one.
    pub(crate) const fn loads(self) -> bool {
        matches!(
            self,
            Slot::cuInit
                | Slot::cuDriverGetVersion
                | Slot::cuGetProcAddress
                | Slot::cuGetProcAddress_v2
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_numbered_in_the_order_of_the_names() {
        for (number, slot) in Slot::ALL.iter().enumerate() {
            assert_eq!(*slot as usize, number);
            assert_eq!(format!("{slot:?}"), slot.name());
        }
    }
}
