//! A context's limits and settings.

use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"limits":
    defaults,
    set,
    unknown,
    priorities,
    context_facts,
    cache_preference,
    shared_memory_banks,
}

fn limit_value(c: &Case, which: u32) -> usize {
    let mut value = 0;
    c.require("cuCtxGetLimit", cuCtxGetLimit(&mut value, which));
    value
}

/// A fresh context has 1 KiB of stack for a thread and 8 MiB of heap for kernels.
fn defaults(c: &Case) {
    primary(c);
    c.same("stack of a thread", limit_value(c, limit::STACK_SIZE), 1024);
    c.same(
        "heap of kernels",
        limit_value(c, limit::MALLOC_HEAP_SIZE),
        8 * MIB,
    );
    c.yes(
        "printf has a buffer",
        limit_value(c, limit::PRINTF_FIFO_SIZE) > 0,
    );
}

/// A limit can be set, and is raised to what the driver needs at least.
fn set(c: &Case) {
    primary(c);
    c.ok(
        "heap of 64 MiB",
        cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 64 * MIB),
    );
    c.same(
        "the heap then",
        limit_value(c, limit::MALLOC_HEAP_SIZE),
        64 * MIB,
    );
    c.ok("heap of 1 byte", cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 1));
    c.same(
        "the heap then",
        limit_value(c, limit::MALLOC_HEAP_SIZE),
        4 * MIB,
    );
    c.ok(
        "stack of 2000 bytes",
        cuCtxSetLimit(limit::STACK_SIZE, 2000),
    );
    c.same("the stack then", limit_value(c, limit::STACK_SIZE), 2000);
    c.ok(
        "printf buffer of 100 bytes",
        cuCtxSetLimit(limit::PRINTF_FIFO_SIZE, 100),
    );
    c.yes(
        "it is raised",
        limit_value(c, limit::PRINTF_FIFO_SIZE) > 100,
    );
    c.ok(
        "heap of 9 MiB and 5 bytes",
        cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 9 * MIB + 5),
    );
    c.same(
        "it is rounded up to 64 KiB",
        limit_value(c, limit::MALLOC_HEAP_SIZE),
        9 * MIB + 64 * KIB,
    );
    c.invalid(
        "stack of 1 GiB",
        cuCtxSetLimit(limit::STACK_SIZE, 1024 * MIB),
    );
}

/// A limit that does not exist is INVALID_VALUE; one that this kind of card lacks UNSUPPORTED_LIMIT.
fn unknown(c: &Case) {
    primary(c);
    let mut value = 0;
    c.invalid("set limit 99", cuCtxSetLimit(99, 1));
    c.invalid("limit into null", cuCtxGetLimit(std::ptr::null_mut(), 1));
    for which in 10..16 {
        c.invalid(
            format_args!("limit {which}"),
            cuCtxGetLimit(&mut value, which),
        );
    }
    for which in [3, 9] {
        let result = cuCtxGetLimit(&mut value, which);
        c.expect(
            format_args!("limit {which}"),
            result,
            Code::UNSUPPORTED_LIMIT,
        );
    }
}

/// Priorities go from 0, the least urgent, to a negative number.
fn priorities(c: &Case) {
    primary(c);
    let (mut least, mut greatest) = (99, 99);
    c.ok(
        "range",
        cuCtxGetStreamPriorityRange(&mut least, &mut greatest),
    );
    c.same("least", least, 0);
    c.same("greatest", greatest, -5);
}

/// A primary context made without flags can map host memory; its interface is version 3020.
fn context_facts(c: &Case) {
    let context = primary(c);
    let (mut flags, mut version, mut device) = (0, 0, -1);
    c.ok("cuCtxGetFlags", cuCtxGetFlags(&mut flags));
    c.same("flags", flags, 8);
    c.ok(
        "cuCtxGetApiVersion",
        cuCtxGetApiVersion(context, &mut version),
    );
    c.same("version", version, 3020);
    c.ok(
        "cuCtxGetApiVersion of null",
        cuCtxGetApiVersion(CUcontext::NULL, &mut version),
    );
    c.ok("cuCtxGetDevice", cuCtxGetDevice(&mut device));
    c.same("device", device, 0);
    c.ok("cuCtxResetPersistingL2Cache", cuCtxResetPersistingL2Cache());
}

/// The cache preference is kept; a value that does not exist fails.
fn cache_preference(c: &Case) {
    primary(c);
    let mut value = 99;
    c.ok("read", cuCtxGetCacheConfig(&mut value));
    c.same("at first", value, 0);
    c.ok("set to 2", cuCtxSetCacheConfig(2));
    c.ok("read", cuCtxGetCacheConfig(&mut value));
    c.same("then", value, 2);
    c.invalid("set to 77", cuCtxSetCacheConfig(77));
}

/// The width of shared memory banks can be asked for, yet stays what the card has.
fn shared_memory_banks(c: &Case) {
    primary(c);
    let mut value = 99;
    c.ok("read", cuCtxGetSharedMemConfig(&mut value));
    c.same("at first", value, 1);
    c.ok("set to 2", cuCtxSetSharedMemConfig(2));
    c.ok("read", cuCtxGetSharedMemConfig(&mut value));
    c.same("then", value, 1);
    c.invalid("set to 9", cuCtxSetSharedMemConfig(9));
}
