//! Casts between plain-data types: which memory is a whole number of aligned values.

use cuguard_driver::sys::CUdeviceptr;

use crate::error::{Error, Result};

/// How many values of `U` the memory of `len` values of `T` holds. Fails with [`Error::Cast`] if that is not a whole number,
/// or if they are not aligned.
pub(super) fn length<T, U>(
    operation: &'static str,
    address: CUdeviceptr,
    len: usize,
) -> Result<usize> {
    // Did not overflow at allocation.
    let bytes = len * size_of::<T>();
    let (size, align) = (size_of::<U>(), align_of::<U>());
    let values = match (size_of::<T>(), size) {
        // Any number of them has no bytes.
        (0, 0) => Some(len),
        (_, 0) => None,
        _ => bytes.is_multiple_of(size).then(|| bytes / size),
    };
    values
        .filter(|_| address.is_multiple_of(align as u64))
        .ok_or(Error::Cast {
            operation,
            bytes,
            address,
            type_name: std::any::type_name::<U>(),
            size,
            align,
        })
}

#[cfg(test)]
mod tests {
    use super::length;

    #[test]
    fn only_whole_and_aligned_values() {
        assert_eq!(length::<u8, u32>("f", 256, 8), Ok(2));
        assert_eq!(length::<u32, u8>("f", 3, 2), Ok(8));
        assert_eq!(length::<(), ()>("f", 0, 5), Ok(5));
        assert_eq!(length::<(), u32>("f", 0, 5), Ok(0));
        assert_eq!(length::<u32, u64>("f", 0, 0), Ok(0));
        assert!(length::<u8, u32>("f", 256, 7).is_err());
        assert!(length::<u32, ()>("f", 256, 1).is_err());
        assert!(length::<u32, ()>("f", 0, 0).is_err());
        let error = length::<u8, u32>("f", 258, 8).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f: the address 0x102 is not aligned for u32, which has alignment 4"
        );
        let error = length::<u8, u32>("f", 258, 7).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f: 7 bytes are not a multiple of 4 bytes, the size of u32"
        );
        let error = length::<u32, ()>("f", 256, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f: 4 bytes are no values of (), which is zero-sized"
        );
    }
}
