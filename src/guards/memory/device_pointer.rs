//! The address of device memory, for builds without the feature `cust`.
//!
//! A library that is written without the feature is compiled with it as soon as another crate of the program turns it on.
//! So this type has the methods and traits of `cust`'s, with the same bounds, and no others.

use std::fmt;
use std::marker::PhantomData;

use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

/// The address of device memory, with the type of its elements. Has the layout of a raw pointer, so that kernels and C
/// functions accept it; the host cannot dereference it.
///
/// With the feature `cust` this is `cust::memory::DevicePointer`. In version 0.3.2, steps back panic there in builds with
/// overflow checks.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::memory::DevicePointer;
/// use cuguard::{Context, DeviceBuffer};
///
/// let context = Context::new(0)?;
/// let buffer = DeviceBuffer::from_slice(&context, &[1_u16, 2, 3])?;
/// let start: DevicePointer<u16> = buffer.as_device_ptr();
/// assert_eq!(start.wrapping_add(2).as_raw(), start.as_raw() + 4);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialOrd, Ord, PartialEq, Eq, Hash)]
pub struct DevicePointer<T: DeviceCopy> {
    ptr: CUdeviceptr,
    marker: PhantomData<*mut T>,
}

// SAFETY: refers to device memory only.
unsafe impl<T: DeviceCopy> DeviceCopy for DevicePointer<T> {}

impl<T: DeviceCopy> fmt::Pointer for DevicePointer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Pointer::fmt(&self.as_ptr(), f)
    }
}

#[allow(
    clippy::wrong_self_convention,
    reason = "`cust`'s methods take the same"
)]
impl<T: DeviceCopy> DevicePointer<T> {
    /// The address `ptr`.
    #[must_use]
    pub fn from_raw(ptr: CUdeviceptr) -> Self {
        Self {
            ptr,
            marker: PhantomData,
        }
    }

    /// The address 0.
    #[must_use]
    pub fn null() -> Self {
        Self::from_raw(0)
    }

    /// The address as the driver takes it.
    #[must_use]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.ptr
    }

    /// The address as a pointer, which the host must not dereference.
    #[must_use]
    pub fn as_ptr(&self) -> *const T {
        self.as_mut_ptr()
    }

    /// The address as a pointer, which the host must not dereference.
    #[must_use]
    pub fn as_mut_ptr(&self) -> *mut T {
        std::ptr::without_provenance_mut(self.ptr as usize)
    }

    /// Whether the address is 0.
    #[must_use]
    pub fn is_null(self) -> bool {
        self.ptr == 0
    }

    /// The same address, with elements of another type.
    #[must_use]
    pub fn cast<U: DeviceCopy>(self) -> DevicePointer<U> {
        DevicePointer::from_raw(self.ptr)
    }

    /// The address `count` elements further on, or back if negative.
    ///
    /// # Safety
    ///
    /// Both addresses are within one allocation, or at its end.
    #[must_use]
    pub unsafe fn offset(self, count: isize) -> Self {
        self.wrapping_offset(count)
    }

    /// The address `count` elements further on.
    ///
    /// # Safety
    ///
    /// As [`offset`](Self::offset).
    #[must_use]
    pub unsafe fn add(self, count: usize) -> Self {
        self.wrapping_add(count)
    }

    /// The address `count` elements before.
    ///
    /// # Safety
    ///
    /// As [`offset`](Self::offset).
    #[must_use]
    pub unsafe fn sub(self, count: usize) -> Self {
        self.wrapping_sub(count)
    }

    /// The address `count` elements further on, or back if negative, modulo 2⁶⁴.
    #[must_use]
    pub fn wrapping_offset(self, count: isize) -> Self {
        let bytes = (count as u64).wrapping_mul(size_of::<T>() as u64);
        Self::from_raw(self.ptr.wrapping_add(bytes))
    }

    /// The address `count` elements further on, modulo 2⁶⁴.
    #[must_use]
    pub fn wrapping_add(self, count: usize) -> Self {
        self.wrapping_offset(count as isize)
    }

    /// The address `count` elements before, modulo 2⁶⁴.
    #[must_use]
    pub fn wrapping_sub(self, count: usize) -> Self {
        self.wrapping_offset((count as isize).wrapping_neg())
    }
}

#[cfg(all(test, feature = "cust"))]
mod tests {
    use std::fmt::{Debug, Pointer};
    use std::hash::Hash;

    use cust::memory::DevicePointer as Cust;

    use super::*;

    /// What is printed of a pointer, and the addresses that its methods compute.
    macro_rules! behaviour {
        ($pointer:ident) => {{
            fn traits<T: Copy + Debug + Ord + Hash + Pointer + DeviceCopy>(value: T) -> String {
                format!("{value:?} {value:p}")
            }
            let (null, start) = ($pointer::<u32>::null(), $pointer::<u32>::from_raw(0x1000));
            // SAFETY: nothing is accessed there.
            let moved = unsafe { [start.offset(3), start.add(3)] };
            let wrapped = [start.wrapping_offset(5), start.wrapping_add(5)];
            let addresses = moved.iter().chain(&wrapped);
            (
                addresses
                    .map(|pointer| pointer.as_raw())
                    .collect::<Vec<_>>(),
                (start.as_ptr().addr(), start.as_mut_ptr().addr()),
                (null.is_null(), start.is_null(), null < start),
                (
                    traits(start),
                    traits(start.cast::<[u8; 3]>().wrapping_add(1)),
                ),
                (size_of::<$pointer<u32>>(), align_of::<$pointer<u32>>()),
            )
        }};
    }

    #[test]
    fn the_pointer_behaves_as_that_of_cust() {
        assert_eq!(behaviour!(DevicePointer), behaviour!(Cust));
    }

    #[test]
    fn steps_back_and_over_the_ends() {
        let start = DevicePointer::<u32>::from_raw(0x1000);
        // SAFETY: nothing is accessed there.
        let back = unsafe { [start.offset(-3), start.sub(3)] };
        assert_eq!(back, [start.wrapping_sub(3), start.wrapping_offset(-3)]);
        assert_eq!(back[0].as_raw(), 0x1000 - 12);
        assert_eq!(start.wrapping_sub(0x401).as_raw(), u64::MAX - 3);
        assert_eq!(start.wrapping_add(usize::MAX).as_raw(), 0x1000 - 4);
    }
}
