//! Every function of `result` at least once, on the simulated GPU. What a driver is given for launches is checked in
//! `loader.rs`, with a library that pretends to be one.

#![allow(clippy::disallowed_methods, reason = "tests call the frees themselves")]
#![cfg(feature = "sim")]

use std::ffi::{CStr, c_void};

use cuguard_driver::result::{
    self, CallError, Result, context, copy, device, event, function, memory, module, pool, stream,
    virtual_memory,
};
use cuguard_driver::sys::{CUresult, CUstream, device_attribute, flags, jit_option, limit};
use cuguard_driver::{Choice, select};

fn init() {
    select(Choice::Sim).expect("nothing else is selected");
    result::init().expect("the simulated GPU starts");
}

/// Runs `test` with device 0's primary context current.
fn in_context(test: impl FnOnce() -> Result) {
    init();
    let context = device::primary_ctx_retain(0).expect("a context");
    // SAFETY: it is alive until it is released below.
    unsafe { context::push_current(context) }.expect("it can be made current");
    let outcome = test();
    assert_eq!(context::pop_current(), Ok(context));
    // SAFETY: `test` has destroyed what it created.
    unsafe { device::primary_ctx_release(0) }.expect("it can be released");
    assert_eq!(outcome, Ok(()));
}

fn failed<T>(function: &'static str, code: CUresult) -> Result<T> {
    Err(CallError { function, code })
}

#[test]
fn devices_describe_themselves() {
    init();
    assert!(device::count().unwrap() >= 1);
    let mut buffer = [0; 256];
    let name = device::name(0, &mut buffer).unwrap().to_owned();
    assert!(!name.is_empty());
    let cut = device::name(0, &mut buffer[..4]).unwrap();
    assert_eq!(cut.to_bytes(), &name.to_bytes()[..3]);
    let id = device::pci_bus_id(0, &mut buffer).unwrap();
    assert_eq!(id.to_bytes().len(), "0000:65:00.0".len(), "{id:?}");
    assert!(device::total_mem(0).unwrap() > 1 << 20);
    assert_eq!(device::attribute(device_attribute::WARP_SIZE, 0), Ok(32));

    let code = CUresult::INVALID_DEVICE;
    assert_eq!(device::total_mem(99), failed("cuDeviceTotalMem", code));
    let retained = device::primary_ctx_retain(99);
    assert_eq!(retained, failed("cuDevicePrimaryCtxRetain", code));
    let error = device::name(99, &mut buffer).unwrap_err();
    let text = "cuDeviceGetName returned CUDA_ERROR_INVALID_DEVICE (101): invalid device ordinal";
    assert_eq!(error.to_string(), text);
}

#[test]
fn contexts_form_a_stack() {
    init();
    assert_eq!(context::current(), Ok(None));
    let code = CUresult::INVALID_CONTEXT;
    assert_eq!(context::synchronize(), failed("cuCtxSynchronize", code));
    assert_eq!(context::pop_current(), failed("cuCtxPopCurrent", code));

    let first = context::create(0, 0).unwrap();
    assert_eq!(context::current(), Ok(Some(first)));
    let second = context::create(0, 0).unwrap();
    assert_eq!(context::pop_current(), Ok(second));
    assert_eq!(context::current(), Ok(Some(first)));
    // SAFETY: it is alive, and nothing was created in it.
    unsafe {
        context::push_current(second).unwrap();
        context::destroy(second).unwrap();
    }
    assert_eq!(context::synchronize(), Ok(()));
    // SAFETY: as above.
    unsafe { context::destroy(first) }.unwrap();
    assert_eq!(context::current(), Ok(None));
}

#[test]
fn contexts_have_limits_and_priorities() {
    in_context(|| {
        let heap = limit::MALLOC_HEAP_SIZE;
        let before = context::limit(heap)?;
        context::set_limit(heap, before * 2)?;
        assert_eq!(context::limit(heap)?, before * 2);
        context::set_limit(heap, before)?;
        assert_eq!(
            context::limit(99).map_err(|e| e.function),
            Err("cuCtxGetLimit")
        );
        let range = context::stream_priority_range()?;
        assert!(range.greatest < range.least, "{range:?}");
        Ok(())
    });
}

#[test]
fn memory_is_allocated_copied_filled_and_freed() {
    in_context(|| {
        let info = memory::info()?;
        assert!(0 < info.free && info.free <= info.total, "{info:?}");
        let code = CUresult::OUT_OF_MEMORY;
        assert_eq!(memory::alloc(1 << 50), failed("cuMemAlloc", code));

        let source = [1_u8, 2, 3, 4, 5, 6, 7, 8];
        let mut target = [0_u8; 8];
        let from = source.as_ptr().cast::<c_void>();
        let to = target.as_mut_ptr().cast::<c_void>();
        let on = CUstream::NULL;
        let address = memory::alloc(8)?;
        let managed = memory::alloc_managed(8, flags::MEM_ATTACH_GLOBAL)?;
        // SAFETY: all ranges have 8 bytes; the stream is waited for before any of them is looked at or
        // freed.
        unsafe {
            copy::htod(address, from, 8)?;
            copy::dtoh(to, address, 8)?;
            assert_eq!(target, source);

            copy::set_d8(address, 9, 8)?;
            copy::dtoh(to, address, 8)?;
            assert_eq!(target, [9; 8]);

            copy::set_d8_async(address, 1, 2, on)?;
            copy::set_d16_async(address + 2, 0x0302, 1, on)?;
            copy::set_d32_async(address + 4, 0x0706_0504, 1, on)?;
            copy::dtod_async(managed, address, 8, on)?;
            copy::dtoh_async(to, managed, 8, on)?;
            stream::synchronize(on)?;
            assert_eq!(target, [1, 1, 2, 3, 4, 5, 6, 7]);

            copy::htod_async(address, from, 8, on)?;
            copy::dtoh_async(to, address, 8, on)?;
            context::synchronize()?;
            assert_eq!(target, source);

            memory::free(managed)?;
            memory::free(address)?;
            let code = CUresult::INVALID_VALUE;
            assert_eq!(memory::free(address), failed("cuMemFree", code));
        }
        Ok(())
    });
}

#[test]
fn host_memory_is_registered_once() {
    in_context(|| {
        let mut memory = vec![0_u8; 1 << 16];
        let start = memory.as_mut_ptr().cast();
        let (bytes, flags) = (memory.len(), flags::MEMHOSTALLOC_PORTABLE);
        let code = CUresult::HOST_MEMORY_ALREADY_REGISTERED;
        // SAFETY: the memory is there until the end.
        unsafe {
            memory::host_register(start, bytes, flags)?;
            let again = memory::host_register(start, bytes, flags);
            assert_eq!(again, failed("cuMemHostRegister", code));
            memory::host_unregister(start)?;
        }
        Ok(())
    });
}

#[test]
fn pools_have_attributes() {
    use pool::Attribute;
    in_context(|| {
        let code = CUresult::INVALID_DEVICE;
        assert_eq!(device::mem_pool(99), failed("cuDeviceGetMemPool", code));
        assert_eq!(device::mem_pool(0)?, device::default_mem_pool(0)?);
        let on = stream::create_with_priority(flags::STREAM_NON_BLOCKING, 0)?;
        let pool = pool::create(0)?;
        // SAFETY: stream and pool are alive until they are destroyed, after what was allocated.
        unsafe {
            let of_device = memory::alloc_async(100, on)?;
            let of_pool = memory::alloc_from_pool_async(100, pool, on)?;
            assert!(pool::attribute(pool, Attribute::Used)? >= 100);
            assert!(pool::attribute(pool, Attribute::ReservedHigh)? >= 100);
            assert!(pool::attribute(pool, Attribute::UsedHigh)? >= 100);

            pool::set_attribute(pool, Attribute::ReleaseThreshold, u64::MAX)?;
            let threshold = pool::attribute(pool, Attribute::ReleaseThreshold);
            assert_eq!(threshold, Ok(u64::MAX));
            memory::free_async(of_pool, on)?;
            memory::free_async(of_device, on)?;
            stream::synchronize(on)?;
            assert!(pool::attribute(pool, Attribute::Reserved)? > 0);
            pool::trim_to(pool, 0)?;
            assert_eq!(pool::attribute(pool, Attribute::Reserved), Ok(0));
            pool::destroy(pool)?;
            stream::destroy(on)
        }
    });
}

#[test]
fn one_page_is_mapped_at_two_addresses() {
    in_context(|| {
        let page = virtual_memory::granularity(0)?;
        let code = CUresult::INVALID_VALUE;
        assert_eq!(
            virtual_memory::address_reserve(1, 0),
            failed("cuMemAddressReserve", code)
        );
        let base = virtual_memory::address_reserve(2 * page, page)?;
        let second = base + page as u64;
        let handle = virtual_memory::create(page, 0)?;
        // SAFETY: the range is reserved and the handle alive until both are freed; nothing is enqueued then.
        unsafe {
            virtual_memory::map(base, page, handle)?;
            virtual_memory::map(second, page, handle)?;
            let mut seen = [0_u8; 4];
            let pointer = seen.as_mut_ptr().cast();
            assert!(copy::dtoh(pointer, base, 4).is_err(), "no access yet");
            virtual_memory::set_access(base, 2 * page, 0)?;
            copy::set_d8(base, 7, page)?;
            copy::dtoh(pointer, second, 4)?;
            assert_eq!(seen, [7; 4]);
            assert!(virtual_memory::address_free(base, 2 * page).is_err());
            virtual_memory::unmap(base, 2 * page)?;
            virtual_memory::release(handle)?;
            assert_eq!(
                virtual_memory::release(handle),
                failed("cuMemRelease", code)
            );
            virtual_memory::address_free(base, 2 * page)
        }
    });
}

#[test]
fn streams_and_events_are_ordered_and_timed() {
    in_context(|| {
        let range = context::stream_priority_range()?;
        let first = stream::create_with_priority(flags::STREAM_NON_BLOCKING, range.greatest)?;
        let second = stream::create_with_priority(0, i32::MAX)?;
        let start = event::create(0)?;
        let end = event::create(0)?;
        // SAFETY: all of them are alive until they are destroyed.
        unsafe {
            assert_eq!(stream::priority(first), Ok(range.greatest));
            assert_eq!(stream::priority(second), Ok(range.least));
            let code = CUresult::INVALID_HANDLE;
            let unrecorded = event::elapsed_time(start, end);
            assert_eq!(unrecorded, failed("cuEventElapsedTime", code));

            event::record(start, first)?;
            stream::wait_event(second, start)?;
            event::record(end, second)?;
            event::synchronize(end)?;
            assert_eq!(event::query(start), Ok(true));
            assert!(event::elapsed_time(start, end)? >= 0.0);
            stream::synchronize(second)?;
            assert_eq!(stream::query(second), Ok(true));

            event::destroy(start)?;
            event::destroy(end)?;
            stream::destroy(first)?;
            stream::destroy(second)
        }
    });
}

#[test]
fn modules_load_and_kernels_run() {
    const TEXT: &CStr = c".version 6.4
.target sm_52
.address_size 64
.visible .global .align 4 .u32 table[3] = {1, 2, 3};
.visible .entry saxpy(.param .f32 a) { ret; }
";
    in_context(|| {
        let mut log = [0_u8; 100];
        // SAFETY: the images are text with a NUL, and the kernel has one parameter.
        unsafe {
            let mut options = [
                jit_option::ERROR_LOG_BUFFER,
                jit_option::ERROR_LOG_BUFFER_SIZE_BYTES,
            ];
            let mut values = [
                log.as_mut_ptr().cast(),
                std::ptr::without_provenance_mut(100),
            ];
            let image = c".version 6.4".as_ptr().cast();
            let loaded = module::load_data_ex(image, &mut options, &mut values);
            let code = CUresult::INVALID_PTX;
            assert_eq!(loaded, failed("cuModuleLoadDataEx", code));
            let text = CStr::from_bytes_until_nul(&log).unwrap().to_string_lossy();
            assert!(
                text.starts_with("ptxas application ptx input, line 1"),
                "{text}"
            );

            let module = module::load_data_ex(TEXT.as_ptr().cast(), &mut [], &mut [])?;
            let absent = module::function(module, c"absent");
            let code = CUresult::NOT_FOUND;
            assert_eq!(absent, failed("cuModuleGetFunction", code));
            assert_eq!(
                module::global(module, c"absent"),
                failed("cuModuleGetGlobal", code)
            );
            assert_eq!(module::global(module, c"table")?.bytes, 12);
            let saxpy = module::function(module, c"saxpy")?;
            let (one, on) = ([1; 3], CUstream::NULL);
            let mut argument = 1.5_f32;
            let parameters = [(&raw mut argument).cast()];
            let launched = function::launch_kernel(saxpy, one, one, 0, on, &parameters);
            assert_eq!(launched, Ok(()));
            context::synchronize()?;
            module::unload(module)?;
            let code = CUresult::INVALID_HANDLE;
            assert_eq!(module::unload(module), failed("cuModuleUnload", code));
        }
        Ok(())
    });
}
