//! Device memory as bytes of the host. But for `fused`, the only unsafe code of this crate.
//!
//! Threads of a kernel may race, and threads of the host execute them. Every access is therefore an atomic one of the
//! width that the instruction has, relaxed unless the instruction says otherwise: a race gives one of the values that were
//! written, as on a GPU, and is defined in Rust. On the hosts that matter a relaxed load is a plain one. Volatile or
//! plain accesses through raw pointers would be undefined in a race.
//!
//! One gap remains: Rust defines no race between atomic accesses of different widths. A kernel whose threads race so is wrong
//! itself (PTX calls it a data race), and the instructions that relaxed atomics compile to are well-behaved even then.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Device memory that is bytes of the host: an allocation, or what of it is contiguous.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    start: u64,
    len: u64,
    host: Pointer,
    lifetime: PhantomData<&'a [AtomicU8]>,
}

#[derive(Clone, Copy, Debug)]
struct Pointer(NonNull<u8>);

// SAFETY: what it points to is accessed by atomic operations alone.
unsafe impl Send for Pointer {}
// SAFETY: as above.
unsafe impl Sync for Pointer {}

impl Region<'_> {
    /// `len` bytes at the device address `start`, which are at `host` in the memory of the host.
    ///
    /// # Panics
    ///
    /// If device and host address are not the same modulo 16, up to which kernels may align.
    ///
    /// # Safety
    ///
    /// For the lifetime of the region, the bytes at `host` can be read and written, and nothing but kernels accesses
    /// them, unless by atomic operations or where the program itself orders or races the accesses, as with managed
    /// memory.
    pub unsafe fn new(start: u64, len: u64, host: NonNull<u8>) -> Self {
        assert!(
            start % 16 == host.as_ptr().addr() as u64 % 16,
            "device memory is aligned as that of the host"
        );
        Self {
            start,
            len,
            host: Pointer(host),
            lifetime: PhantomData,
        }
    }

    /// No memory.
    fn empty() -> Self {
        Self {
            start: 0,
            len: 0,
            host: Pointer(NonNull::dangling()),
            lifetime: PhantomData,
        }
    }

    /// The offset of an address whose `size` bytes are in the region.
    #[inline(always)]
    pub(crate) fn offset(&self, address: u64, size: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.start);
        (offset < self.len && size <= self.len - offset).then_some(offset)
    }

    /// The host's address of a value.
    #[inline(always)]
    fn at<W: Word>(&self, address: u64) -> Option<NonNull<u8>> {
        let offset = self.offset(address, W::SIZE as u64)?;
        if !address.is_multiple_of(W::SIZE as u64) {
            return None;
        }
        // SAFETY: the offset is within the region.
        Some(unsafe { self.host.0.add(offset as usize) })
    }

    /// Reads a value. `None` if it is not within the region, or not aligned.
    #[inline(always)]
    pub(crate) fn load<W: Word>(&self, address: u64) -> Option<W> {
        // SAFETY: `at` checks bounds and alignment; the region is valid by the contract of `new`.
        self.at::<W>(address)
            .map(|at| unsafe { W::load(at, Ordering::Relaxed) })
    }

    /// Writes a value. `None` if it is not within the region, or not aligned.
    #[inline(always)]
    pub(crate) fn store<W: Word>(&self, address: u64, value: W) -> Option<()> {
        // SAFETY: as in `load`.
        self.at::<W>(address)
            .map(|at| unsafe { W::store(at, value, Ordering::Relaxed) })
    }

    /// Reads adjacent values. `None` if they are not within the region, or not aligned.
    #[inline(always)]
    pub(crate) fn load_row<W: Word, const N: usize>(&self, address: u64) -> Option<[W; N]> {
        self.offset(address, (N * W::SIZE) as u64)?;
        let start = self.at::<W>(address)?;
        // SAFETY: all N values are in the region, as checked above; the rest as in `load`.
        Some(std::array::from_fn(|index| unsafe {
            W::load(start.add(index * W::SIZE), Ordering::Relaxed)
        }))
    }

    /// Writes adjacent values. `None` if they are not within the region, or not aligned.
    #[inline(always)]
    pub(crate) fn store_row<W: Word, const N: usize>(
        &self,
        address: u64,
        values: &[W; N],
    ) -> Option<()> {
        self.offset(address, (N * W::SIZE) as u64)?;
        let start = self.at::<W>(address)?;
        for (index, value) in values.iter().enumerate() {
            // SAFETY: as in `load_row`.
            unsafe { W::store(start.add(index * W::SIZE), *value, Ordering::Relaxed) };
        }
        Some(())
    }

    /// Replaces a value in one atomic operation, and returns the old one. `None` if it is not within the region, or not
    /// aligned.
    #[inline(always)]
    pub(crate) fn update<W: Word>(&self, address: u64, new: impl FnMut(W) -> W) -> Option<W> {
        // SAFETY: as in `load`.
        self.at::<W>(address)
            .map(|at| unsafe { W::update(at, new) })
    }
}

/// A width of memory accesses.
pub(crate) trait Word: Copy + Send + Sync + 'static {
    const SIZE: usize;
    /// From bytes, of which there are `SIZE`.
    fn read(bytes: &[u8]) -> Self;
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
    /// # Safety
    ///
    /// The address is valid for atomic accesses of this width and aligned.
    unsafe fn load(at: NonNull<u8>, order: Ordering) -> Self;
    /// # Safety
    ///
    /// As for `load`.
    unsafe fn store(at: NonNull<u8>, value: Self, order: Ordering);
    /// # Safety
    ///
    /// As for `load`.
    unsafe fn update(at: NonNull<u8>, new: impl FnMut(Self) -> Self) -> Self;
}

macro_rules! words {
    ($($type:ty, $atomic:ty;)*) => { $(
        impl Word for $type {
            const SIZE: usize = size_of::<Self>();
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                bytes.try_into().map_or(0, Self::from_le_bytes)
            }
            #[inline(always)]
            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
            #[inline(always)]
            fn to_bits(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            unsafe fn load(at: NonNull<u8>, order: Ordering) -> Self {
                // SAFETY: as the caller guarantees.
                unsafe { <$atomic>::from_ptr(at.cast().as_ptr()) }.load(order)
            }
            #[inline(always)]
            unsafe fn store(at: NonNull<u8>, value: Self, order: Ordering) {
                // SAFETY: as the caller guarantees.
                unsafe { <$atomic>::from_ptr(at.cast().as_ptr()) }.store(value, order);
            }
            #[inline(always)]
            unsafe fn update(at: NonNull<u8>, mut new: impl FnMut(Self) -> Self) -> Self {
                // SAFETY: as the caller guarantees.
                let own = unsafe { <$atomic>::from_ptr(at.cast().as_ptr()) };
                let mut old = own.load(Ordering::Relaxed);
                loop {
                    match own.compare_exchange_weak(old, new(old), Ordering::SeqCst, Ordering::Relaxed) {
                        Ok(old) => return old,
                        Err(other) => old = other,
                    }
                }
            }
        }
    )* };
}

words! {
    u8, AtomicU8;
    u16, AtomicU16;
    u32, AtomicU32;
    u64, AtomicU64;
}

/// Regions that were found last, by the number of the instruction that accessed them.
#[derive(Debug)]
pub(crate) struct Regions<'a>([Region<'a>; 16]);

impl<'a> Regions<'a> {
    pub(crate) fn new() -> Self {
        Self([Region::empty(); 16])
    }

    /// The region that an instruction accessed last, or another with the same hint.
    #[inline(always)]
    pub(crate) fn get(&self, hint: u8) -> Region<'a> {
        self.0[usize::from(hint % 16)]
    }

    pub(crate) fn set(&mut self, hint: u8, region: Region<'a>) {
        self.0[usize::from(hint % 16)] = region;
    }

    /// Forgets all: memory was freed.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accesses_are_within_the_region_and_aligned() {
        let mut memory = [0u64; 8];
        let host = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        let start = 0x1000 + host.as_ptr().addr() as u64 % 16;
        // SAFETY: `memory` lives to the end of the function, and is not used until then.
        let region = unsafe { Region::new(start, 64, host) };
        assert_eq!(region.store(start + 60, 7u32), Some(()));
        assert_eq!(region.load::<u32>(start + 60), Some(7));
        assert_eq!(region.load::<u32>(start + 62), None);
        assert_eq!(region.load::<u64>(start + 60), None);
        assert_eq!(region.load::<u8>(start + 64), None);
        assert_eq!(region.load::<u8>(start - 1), None);
        assert_eq!(region.load::<u64>(u64::MAX - 7), None);
        assert_eq!(region.store_row(start + 32, &[1u64, 2, 3, 4]), Some(()));
        assert_eq!(region.store_row(start + 40, &[1u64, 2, 3, 4]), None);
        assert_eq!(region.load_row::<u64, 4>(start + 32), Some([1, 2, 3, 4]));
        assert_eq!(region.update(start + 32, |old: u64| old + 1), Some(1));
        assert_eq!(region.load::<u16>(start + 32), Some(2));
        assert_eq!(Region::empty().load::<u8>(0), None);
    }
}
