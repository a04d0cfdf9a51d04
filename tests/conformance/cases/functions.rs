//! The functions of modules: names, attributes, parameters, and how many blocks of them fit on a multiprocessor.

use std::ffi::CStr;
use std::ptr;

use super::kernels::{function, load};
use super::modules::{CODE, name_of};
use crate::case::Case;
use crate::driver::CUresult as Code;
use crate::driver::*;
use crate::tools::*;

cases! {"functions":
    names,
    attributes,
    set_attributes,
    parameters,
    occupancy,
    available_shared,
    clusters,
}

/// A function has a name and a module.
fn names(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let first = function(c, module, c"first");
    c.same("its name", name_of(c, first), "first".to_owned());
    let mut found = CUmodule::NULL;
    c.ok("its module", cuFuncGetModule(&mut found, first));
    c.same_handle("its module", found, module);
    let mut name = ptr::null();
    let none = CUfunction::NULL;
    c.invalid("name to null", cuFuncGetName(ptr::null_mut(), first));
    c.invalid("name of null", cuFuncGetName(&mut name, none));
    c.invalid("module to null", cuFuncGetModule(ptr::null_mut(), first));
    c.invalid("module of null", cuFuncGetModule(&mut found, none));
    c.ok("load it", cuFuncLoad(first));
    let mut state = 99;
    c.ok("is it loaded", cuFuncIsLoaded(&mut state, first));
    c.same("it is", state, function_loading_state::LOADED);
    let want = Code::INVALID_HANDLE;
    c.expect("is null loaded", cuFuncIsLoaded(&mut state, none), want);
    c.expect("load null", cuFuncLoad(none), want);
    c.invalid(
        "is it loaded, to null",
        cuFuncIsLoaded(ptr::null_mut(), first),
    );
}

pub(crate) fn attribute(c: &Case, function: CUfunction, attribute: u32) -> i32 {
    let mut value = -77;
    let result = cuFuncGetAttribute(&mut value, attribute, function);
    c.require(format_args!("attribute {attribute}"), result);
    value
}

/// The attributes that do not depend on the compiler.
fn attributes(c: &Case) {
    use function_attribute as names;
    primary(c);
    let module = load(c, CODE);
    let get = |name: &CStr, which| attribute(c, function(c, module, name), which);
    let threads = names::MAX_THREADS_PER_BLOCK;
    c.same("threads of first", get(c"first", threads), 128);
    c.same("threads of empty", get(c"empty", threads), 1024);
    c.same("threads of required", get(c"required", threads), 1024);
    let shared = names::SHARED_SIZE_BYTES;
    c.same("shared of empty", get(c"empty", shared), 0);
    c.same("shared of with_shared", get(c"with_shared", shared), 2048);
    let dynamic = names::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    c.same("dynamic of empty", get(c"empty", dynamic), 49_152);
    c.same(
        "dynamic of with_shared",
        get(c"with_shared", dynamic),
        47_104,
    );
    c.same("constants", get(c"empty", names::CONST_SIZE_BYTES), 16);
    c.same("local", get(c"empty", names::LOCAL_SIZE_BYTES), 0);
    c.same("PTX", get(c"empty", names::PTX_VERSION), 52);
    c.same("binary", get(c"empty", names::BINARY_VERSION), 90);
    c.same(
        "carveout",
        get(c"empty", names::PREFERRED_SHARED_MEMORY_CARVEOUT),
        -1,
    );
    c.yes(
        "registers",
        (1..=255).contains(&get(c"empty", names::NUM_REGS)),
    );
    for which in names::CLUSTER_SIZE_MUST_BE_SET..names::DEVICE_NODE_UPDATE_SUPPORTED {
        c.same(format_args!("attribute {which}"), get(c"two", which), 0);
    }
    let empty = function(c, module, c"empty");
    let mut value = 0;
    for which in [99, u32::MAX] {
        let result = cuFuncGetAttribute(&mut value, which, empty);
        c.invalid(format_args!("attribute {which}"), result);
    }
    c.invalid("to null", cuFuncGetAttribute(ptr::null_mut(), 0, empty));
    let none = CUfunction::NULL;
    c.expect(
        "of null",
        cuFuncGetAttribute(&mut value, 0, none),
        Code::INVALID_HANDLE,
    );
}

/// Dynamic shared memory, the carveout and clusters are set by the program, within limits.
fn set_attributes(c: &Case) {
    use function_attribute as names;
    primary(c);
    let module = load(c, CODE);
    let shared = function(c, module, c"with_shared");
    let dynamic = names::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    for bytes in [0, 49_152, 100_000, 230_400] {
        c.ok(
            format_args!("dynamic {bytes}"),
            cuFuncSetAttribute(shared, dynamic, bytes),
        );
        c.same("it is that", attribute(c, shared, dynamic), bytes);
    }
    for bytes in [230_401, 232_448, -1] {
        c.invalid(
            format_args!("dynamic {bytes}"),
            cuFuncSetAttribute(shared, dynamic, bytes),
        );
        c.same("it is as before", attribute(c, shared, dynamic), 230_400);
    }
    let empty = function(c, module, c"empty");
    c.ok("all of it", cuFuncSetAttribute(empty, dynamic, 232_448));
    let carveout = names::PREFERRED_SHARED_MEMORY_CARVEOUT;
    for percent in [-1, 0, 50, 100] {
        c.ok(
            format_args!("carveout {percent}"),
            cuFuncSetAttribute(empty, carveout, percent),
        );
    }
    for percent in [-2, 101] {
        c.invalid(
            format_args!("carveout {percent}"),
            cuFuncSetAttribute(empty, carveout, percent),
        );
    }
    c.same("carveout", attribute(c, empty, carveout), 100);
    for which in (0..=names::CACHE_MODE_CA).chain([names::CLUSTER_SIZE_MUST_BE_SET, 99]) {
        c.invalid(
            format_args!("attribute {which}"),
            cuFuncSetAttribute(empty, which, 1),
        );
    }
    for which in names::REQUIRED_CLUSTER_WIDTH..=names::CLUSTER_SCHEDULING_POLICY_PREFERENCE {
        c.ok(
            format_args!("attribute {which}"),
            cuFuncSetAttribute(empty, which, 1),
        );
        c.same("it is that", attribute(c, empty, which), 1);
    }
    for config in 0..4 {
        c.ok(
            format_args!("cache {config}"),
            cuFuncSetCacheConfig(empty, config),
        );
    }
    c.invalid("cache 4", cuFuncSetCacheConfig(empty, 4));
    let none = CUfunction::NULL;
    c.expect(
        "of null",
        cuFuncSetAttribute(none, dynamic, 0),
        Code::INVALID_HANDLE,
    );
    c.expect(
        "cache of null",
        cuFuncSetCacheConfig(none, 0),
        Code::INVALID_HANDLE,
    );
}

/// Each parameter has an offset and a size, as in a C struct.
fn parameters(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let first = function(c, module, c"first");
    let (mut offset, mut size) = (77, 77);
    for (index, want) in [(0, 1), (8, 8), (16, 24), (40, 4)].into_iter().enumerate() {
        let result = cuFuncGetParamInfo(first, index, &mut offset, &mut size);
        c.ok(format_args!("parameter {index}"), result);
        c.same("its place", (offset, size), want);
    }
    c.invalid(
        "parameter 4",
        cuFuncGetParamInfo(first, 4, &mut offset, &mut size),
    );
    let empty = function(c, module, c"empty");
    c.invalid(
        "of empty",
        cuFuncGetParamInfo(empty, 0, &mut offset, &mut size),
    );
    c.ok(
        "only the offset",
        cuFuncGetParamInfo(first, 0, &mut offset, ptr::null_mut()),
    );
    c.invalid(
        "only the size",
        cuFuncGetParamInfo(first, 0, ptr::null_mut(), &mut size),
    );
    let none = CUfunction::NULL;
    c.invalid(
        "of null",
        cuFuncGetParamInfo(none, 0, &mut offset, &mut size),
    );
}

/// How many blocks fit on a multiprocessor, where registers do not matter.
fn occupancy(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let empty = function(c, module, c"empty");
    let mut blocks = -7;
    for (threads, want) in [
        (1, 32),
        (32, 32),
        (64, 32),
        (100, 16),
        (128, 16),
        (256, 8),
        (1000, 2),
        (1024, 2),
        (1025, 0),
    ] {
        let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, empty, threads, 0);
        c.ok(format_args!("{threads} threads"), result);
        c.same("blocks", blocks, want);
    }
    for (shared, want) in [(1, 16), (10_000, 16), (48_000, 4), (49_152, 4), (49_153, 0)] {
        let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, empty, 128, shared);
        c.ok(format_args!("{shared} bytes of shared memory"), result);
        c.same("blocks", blocks, want);
    }
    for threads in [0, -1] {
        let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, empty, threads, 0);
        c.invalid(format_args!("{threads} threads"), result);
    }
    let none = CUfunction::NULL;
    let result = cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, none, 32, 0);
    c.expect("of null", result, Code::INVALID_HANDLE);
    let result = cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&mut blocks, empty, 32, 0, 2);
    c.invalid("flags 2", result);
    let (mut grid, mut block) = (0, 0);
    let first = function(c, module, c"first");
    for (function, shared, limit, want) in [
        (first, 0, 0, (2112, 128)),
        (empty, 0, 0, (264, 1024)),
        (empty, 40_000, 100, (660, 100)),
    ] {
        let result =
            cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, function, None, shared, limit);
        c.ok("the best block", result);
        c.same("grid and block", (grid, block), want);
    }
    let result = cuOccupancyMaxPotentialBlockSize(&mut grid, &mut block, empty, None, 0, -1);
    c.invalid("a negative limit", result);
}

/// The shared memory that blocks can have if several are to fit on a multiprocessor.
fn available_shared(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let empty = function(c, module, c"empty");
    let mut bytes = 777;
    let available = |bytes: &mut usize, function, blocks, threads| {
        cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads)
    };
    for (blocks, want) in [(1, 49_152), (4, 49_152), (8, 29_184), (32, 7_296)] {
        c.ok(
            format_args!("{blocks} blocks"),
            available(&mut bytes, empty, blocks, 32),
        );
        c.same("bytes", bytes, want);
    }
    let most = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
    c.ok("allow more", cuFuncSetAttribute(empty, most, 232_448));
    for (blocks, want) in [
        (1, 232_448),
        (2, 116_736),
        (3, 77_824),
        (4, 58_368),
        (5, 46_592),
        (7, 33_280),
        (16, 14_592),
    ] {
        c.ok(
            format_args!("{blocks} blocks"),
            available(&mut bytes, empty, blocks, 128),
        );
        c.same("bytes", bytes, want);
    }
    for (blocks, threads) in [
        (0, 32),
        (33, 32),
        (3, 1024),
        (16, 256),
        (1, 0),
        (1, 1025),
        (-1, 32),
    ] {
        let result = available(&mut bytes, empty, blocks, threads);
        c.invalid(format_args!("{blocks} blocks of {threads}"), result);
    }
}

/// How many clusters run at a time, and how large they can be.
fn clusters(c: &Case) {
    primary(c);
    let module = load(c, CODE);
    let empty = function(c, module, c"empty");
    let query = |grid, block, shared, cluster| {
        // SAFETY: a plain C struct, for which zeros are a value.
        let mut attribute: CUlaunchAttribute = unsafe { std::mem::zeroed() };
        attribute.id = launch_attribute_id::CLUSTER_DIMENSION;
        attribute.value.clusterDim = CUstreamAttrValue_clusterDim {
            x: cluster,
            y: 1,
            z: 1,
        };
        let config = CUlaunchConfig {
            gridDimX: grid,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: shared,
            attrs: &mut attribute,
            numAttrs: u32::from(cluster > 0),
            ..CUlaunchConfig::default()
        };
        let (mut count, mut size) = (-7, -7);
        let counted = cuOccupancyMaxActiveClusters(&mut count, empty, &config);
        let sized = cuOccupancyMaxPotentialClusterSize(&mut size, empty, &config);
        c.same("both codes", counted, sized);
        (counted, count, size)
    };
    let ok = Code::SUCCESS;
    for (block, cluster, want) in [
        (128, 0, (ok, 0, 8)),
        (128, 1, (ok, 1056, 8)),
        (1024, 2, (ok, 132, 8)),
        (512, 3, (ok, 163, 8)),
        (128, 4, (ok, 248, 8)),
        (1024, 8, (ok, 30, 8)),
        (128, 16, (Code::INVALID_CLUSTER_SIZE, -7, -7)),
        (0, 2, (Code::INVALID_VALUE, -7, -7)),
        (1025, 2, (ok, 0, 0)),
    ] {
        let found = query(96, block, 0, cluster);
        c.same(
            format_args!("clusters of {cluster}, blocks of {block}"),
            found,
            want,
        );
    }
    c.same("no grid", query(0, 128, 0, 2).0, Code::INVALID_VALUE);
    c.same(
        "a grid of 5",
        query(5, 128, 0, 2).0,
        Code::INVALID_CLUSTER_SIZE,
    );
    c.same("shared memory", query(96, 128, 300_000, 2), (ok, 0, 0));
    let allowed = function_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    c.ok("allow more", cuFuncSetAttribute(empty, allowed, 1));
    c.same("clusters of 16", query(96, 128, 0, 16), (ok, 58, 16));
    c.same("clusters of 32", query(96, 128, 0, 32), (ok, 0, 16));
    let mut count = 0;
    let none = ptr::null();
    c.invalid(
        "no config",
        cuOccupancyMaxActiveClusters(&mut count, empty, none),
    );
}
