//! Attributes of ranges of managed memory.

use std::collections::BTreeSet;
use std::ffi::c_void;

use cuguard_sys::{
    CUdeviceptr, CUmemLocation, CUresult, mem_location_type, mem_range_attribute as attribute,
};

use super::read;
use crate::memory::{CPU, NO_DEVICE, NOWHERE, PageAdvice};
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, lock};

/// The location that all pages have, else none.
fn common(pages: &[&PageAdvice], location: impl Fn(&PageAdvice) -> CUmemLocation) -> CUmemLocation {
    let first = location(pages[0]);
    match pages.iter().all(|page| location(page) == first) {
        true => first,
        false => NOWHERE,
    }
}

/// The number that stands for a location in the attributes that know only devices and the host.
fn as_device(location: CUmemLocation) -> i32 {
    match location.type_ {
        mem_location_type::NONE => NO_DEVICE,
        mem_location_type::DEVICE => location.id,
        _ => CPU,
    }
}

/// The devices that access all pages, then the host if it does.
fn accessed_by(pages: &[&PageAdvice]) -> Vec<i32> {
    let first = pages[0].accessed_by.clone();
    let common = pages.iter().fold(first, |common: BTreeSet<i32>, page| {
        common.intersection(&page.accessed_by).copied().collect()
    });
    let devices = common.iter().copied().filter(|device| *device != CPU);
    let host = common.contains(&CPU).then_some(CPU);
    devices.chain(host).collect()
}

/// The known numbers of an attribute that the caller has `size` bytes for.
fn values(
    state: &DriverState,
    which: u32,
    size: usize,
    ptr: CUdeviceptr,
    count: usize,
) -> DriverResult<Vec<i32>> {
    let number = size_of::<i32>();
    let range = state.managed(ptr, count)?;
    let pages: Vec<_> = range.advice.within(ptr, count as u64).collect();
    if which == attribute::ACCESSED_BY {
        let possible = 0 < size && size <= isize::MAX as usize;
        valid(possible && size.is_multiple_of(number))?;
        return Ok(accessed_by(&pages));
    }
    valid(size == number)?;
    let preferred = common(&pages, |page| page.preferred);
    let prefetched = common(&pages, |page| page.last_prefetch);
    Ok(vec![match which {
        attribute::READ_MOSTLY => pages.iter().all(|page| page.read_mostly).into(),
        attribute::PREFERRED_LOCATION => as_device(preferred),
        attribute::PREFERRED_LOCATION_TYPE => preferred.type_ as i32,
        attribute::PREFERRED_LOCATION_ID => preferred.id,
        attribute::LAST_PREFETCH_LOCATION => as_device(prefetched),
        attribute::LAST_PREFETCH_LOCATION_TYPE => prefetched.type_ as i32,
        attribute::LAST_PREFETCH_LOCATION_ID => prefetched.id,
        _ => return Err(CUresult::INVALID_VALUE),
    }])
}

/// Writes the known numbers, and after them that there is no other device.
///
/// # Safety
///
/// `data` is valid for `size` bytes, which are a multiple of four.
unsafe fn write_all(data: *mut c_void, size: usize, known: &[i32]) {
    for index in 0..size / size_of::<i32>() {
        let value = known.get(index).copied().unwrap_or(NO_DEVICE);
        // SAFETY: as the caller guarantees. C callers need not align.
        unsafe { data.cast::<i32>().add(index).write_unaligned(value) };
    }
}

pub unsafe fn cuMemRangeGetAttribute(
    data: *mut c_void,
    size: usize,
    which: u32,
    ptr: CUdeviceptr,
    count: usize,
) -> DriverResult {
    valid(!data.is_null())?;
    let state = lock();
    state.current()?;
    let values = values(&state, which, size, ptr, count)?;
    // SAFETY: the caller guarantees the size, which `values` has checked.
    unsafe { write_all(data, size, &values) };
    Ok(())
}

/// Writes nothing unless all attributes are valid.
pub unsafe fn cuMemRangeGetAttributes(
    data: *mut *mut c_void,
    sizes: *mut usize,
    attributes: *mut u32,
    attributes_count: usize,
    ptr: CUdeviceptr,
    count: usize,
) -> DriverResult {
    valid(attributes_count > 0)?;
    valid(!data.is_null() && !sizes.is_null() && !attributes.is_null())?;
    let state = lock();
    state.current()?;
    let mut found = Vec::new();
    for index in 0..attributes_count {
        // SAFETY: the caller guarantees as many elements.
        let (out, size, which) = unsafe {
            (
                read(data.add(index))?,
                read(sizes.add(index))?,
                read(attributes.add(index))?,
            )
        };
        valid(!out.is_null())?;
        found.push((out, size, values(&state, which, size, ptr, count)?));
    }
    for (out, size, values) in found {
        // SAFETY: the caller guarantees the size, which `values` has checked.
        unsafe { write_all(out, size, &values) };
    }
    Ok(())
}
