//! Kernels that run: their results, variables, output, heap, and their order on streams.

use std::ffi::{CStr, c_void};

use crate::common::kernels::*;
use crate::common::*;
use cuguard_sys::*;

const HEAP: &str = include_str!("../../../kernels/heap.ptx");
const LAUNCHES: &str = include_str!("../../../kernels/launches.ptx");

#[test]
fn a_kernel_runs_at_its_position_on_the_stream() {
    let _turn = turn();
    context();
    let module = load(KERNELS);
    let store = function(module, c"store");
    let (one, two) = (stream(), stream());
    let gate = Gate::close(one);
    let mut memory = alloc_async(4096, one);
    ok(cu::cuMemsetD32Async(memory, 9, 1024, one));
    launch(
        store,
        [4, 64],
        one,
        &mut [arg(&mut memory), arg(&mut 100_u32)],
    );
    assert_eq!(cu::cuStreamQuery(one), CUresult::NOT_READY);
    let done = event();
    ok(cu::cuEventRecord(done, one));
    ok(cu::cuStreamWaitEvent(two, done, 0));
    let mut found = vec![0_u32; 1024];
    let to = found.as_mut_ptr().cast();
    ok(cu::cuMemcpyDtoDAsync_v2(memory + 2048, memory, 1024, two));
    gate.open();
    ok(cu::cuStreamSynchronize(two));
    ok(cu::cuMemcpyDtoH_v2(to, memory, 4096));
    let expected: Vec<u32> = (100..356).collect();
    assert_eq!(found[..256], expected);
    assert_eq!(found[256..512], [9; 256]);
    assert_eq!(found[512..768], expected);
    ok(cu::cuMemFree_v2(memory));
    ok(cu::cuModuleUnload(module));
    release();
}

/// What a program frees on a stream is there for the kernels before the free, and new memory at the same address is another.
#[test]
fn memory_that_is_freed_on_the_stream_is_that_of_the_kernels_before() {
    let _turn = turn();
    context();
    let module = load(KERNELS);
    let store = function(module, c"store");
    let stream = stream();
    let mut seen = alloc(3 * 1024);
    let gate = Gate::close(stream);
    let mut bases = Vec::new();
    for round in 0..3_u32 {
        let mut memory = alloc_async(1024, stream);
        let mut value = 1000 * round;
        launch(
            store,
            [4, 64],
            stream,
            &mut [arg(&mut memory), arg(&mut value)],
        );
        let to = seen + 1024 * u64::from(round);
        ok(cu::cuMemcpyDtoDAsync_v2(to, memory, 1024, stream));
        ok(cu::cuMemFreeAsync(memory, stream));
        bases.push(memory);
    }
    bases.dedup();
    assert_eq!(bases.len(), 1, "the address is the same");
    gate.open();
    ok(cu::cuStreamSynchronize(stream));
    for round in 0..3_u32 {
        let found = read::<u32>(seen + 1024 * u64::from(round), 256);
        assert!(found.into_iter().eq(1000 * round..1000 * round + 256));
    }
    let _ = arg(&mut seen);
    ok(cu::cuMemFree_v2(seen));
    release();
}

#[test]
fn all_kinds_of_memory_are_within_reach() {
    let _turn = turn();
    context();
    let module = load(KERNELS);
    let store = function(module, c"store");
    let mut managed = 0;
    ok(cu::cuMemAllocManaged(&mut managed, 4096, 1));
    let pinned = pinned(4096);
    let mut own = vec![0_u32; 100];
    let own_ptr: *mut c_void = own.as_mut_ptr().cast();
    ok(cu::cuMemHostRegister_v2(own_ptr, 400, 0));
    let device = alloc(4096);
    for address in [managed, pinned.addr() as u64, own_ptr.addr() as u64, device] {
        let mut address = address;
        let stream = CUstream::NULL;
        launch(
            store,
            [1, 100],
            stream,
            &mut [arg(&mut address), arg(&mut 3_u32)],
        );
        ok(cu::cuCtxSynchronize());
        assert!(read::<u32>(address, 100).into_iter().eq(3..103));
    }
    assert!(own.iter().copied().eq(3..103));
    ok(cu::cuMemHostUnregister(own_ptr));
    ok(cu::cuMemFreeHost(pinned));
    ok(cu::cuMemFree_v2(managed));
    ok(cu::cuMemFree_v2(device));
    release();
}

#[test]
fn variables_are_seen_by_host_and_kernel() {
    let _turn = turn();
    context();
    let module = load(KERNELS);
    let kernel = function(module, c"variables");
    let variable = |name: &CStr, expected: usize| {
        let (mut ptr, mut bytes) = (0, 0);
        let name = name.as_ptr();
        ok(cu::cuModuleGetGlobal_v2(&mut ptr, &mut bytes, module, name));
        assert_eq!(bytes, expected);
        ptr
    };
    let (counter, table) = (variable(c"counter", 4), variable(c"table", 16));
    assert_eq!(read::<u64>(variable(c"where", 8), 1), [counter]);
    assert_eq!(read::<u32>(table, 4), [1, 20, 300, 4000]);
    let mut seen = alloc(12);
    let mut run = || {
        launch(kernel, [1, 1], CUstream::NULL, &mut [arg(&mut seen)]);
        read::<u32>(seen, 3)
    };
    assert_eq!(run(), [7, 7, 5]);
    assert_eq!(run(), [307, 307, 6]);
    ok(cu::cuMemsetD32_v2(counter, 50, 1));
    ok(cu::cuMemsetD32_v2(table, 2, 4));
    assert_eq!(run(), [50, 50, 7]);
    assert_eq!(read::<u32>(counter, 1), [52]);
    // Another module of the same text has its own.
    let other = load(KERNELS);
    let kernel = function(other, c"variables");
    launch(kernel, [1, 1], CUstream::NULL, &mut [arg(&mut seen)]);
    assert_eq!(read::<u32>(seen, 3), [7, 7, 5]);
    ok(cu::cuModuleUnload(other));
    ok(cu::cuModuleUnload(module));
    ok(cu::cuMemFree_v2(seen));
    assert_eq!(cuguard_sim::counters().device.count, 0);
    release();
}

#[test]
fn output_is_written_when_the_program_synchronizes() {
    const NAME: &str = "output_is_written_when_the_program_synchronizes";
    if is_child() {
        context();
        let print = function(load(KERNELS), c"print");
        let stream = stream();
        for mut number in [1_i32, -2] {
            launch(print, [1, 2], stream, &mut [arg(&mut number)]);
        }
        ok(cu::cuStreamSynchronize(stream));
        println!("synchronized");
        launch(print, [1, 1], stream, &mut [arg(&mut 3_i32)]);
        println!("before");
        ok(cu::cuCtxSynchronize());
        println!("after");
        return;
    }
    let output = child(NAME);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected =
        "number 1\nnumber 1\nnumber -2\nnumber -2\nsynchronized\nbefore\nnumber 3\nafter\n";
    assert!(text.contains(expected), "{text}");
}

/// Threads that allocate, and what they got.
fn heap_allocate(kernel: CUfunction, threads: u32, mut bytes: u64, mut keep: u32) -> [u64; 2] {
    let mut counts = alloc(16);
    ok(cu::cuMemsetD8_v2(counts, 0, 16));
    let mut refused = counts + 8;
    let arguments = &mut [
        arg(&mut bytes),
        arg(&mut keep),
        arg(&mut counts),
        arg(&mut refused),
    ];
    launch(kernel, [1, threads], CUstream::NULL, arguments);
    let found = read::<u64>(counts, 2);
    ok(cu::cuMemFree_v2(counts));
    [found[0], found[1]]
}

#[test]
fn kernels_allocate_from_the_heap_of_their_context() {
    let _turn = turn();
    ok(cu::cuInit(0));
    let before = {
        context();
        free_bytes()
    };
    let context = create();
    let kernel = function(load(HEAP), c"heap_allocate");
    ok(cu::cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 4 * MIB));
    assert_eq!(heap_allocate(kernel, 32, 1000, 0), [32, 0]);
    // The size is fixed from now on.
    let result = cu::cuCtxSetLimit(limit::MALLOC_HEAP_SIZE, 64 * MIB);
    assert_eq!(result, CUresult::INVALID_VALUE);
    assert_eq!(heap_allocate(kernel, 8, MIB as u64, 1), [4, 4]);
    assert_eq!(heap_allocate(kernel, 1, 1000, 0), [0, 1]);
    ok(cu::cuCtxDestroy_v2(context));
    assert_eq!(free_bytes(), before);
    release();
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let _turn = turn();
    context();
    let sum = function(load(LAUNCHES), c"sum_everywhere");
    let blocks = 100_u32;
    let words: Vec<u32> = (0..10_000).collect();
    let (mut from, mut rest) = (alloc(40_000), alloc(4096));
    ok(cu::cuMemcpyHtoD_v2(from, words.as_ptr().cast(), 40_000));
    ok(cu::cuMemsetD8_v2(rest, 0, 4096));
    let (mut count, mut arrived, mut sums) = (10_000_u32, rest + 2000, rest + 2048);
    let mut list = [
        arg(&mut from),
        arg(&mut count),
        arg(&mut rest),
        arg(&mut arrived),
        arg(&mut sums),
    ];
    let (stream, list) = (CUstream::NULL, list.as_mut_ptr());
    ok(cu::cuLaunchCooperativeKernel(
        sum, blocks, 1, 1, 64, 1, 1, 0, stream, list,
    ));
    ok(cu::cuCtxSynchronize());
    assert_eq!(read::<u32>(sums, 100), [49_995_000; 100]);
    release();
}

/// The grid's barrier of `cooperative_groups`, as nvcc compiles it.
#[test]
fn the_barrier_of_cooperative_groups_is_there() {
    const GROUPS: &str = include_str!("../../kernels/corpus/groups.ptx");
    let _turn = turn();
    context();
    let kernel = function(load(GROUPS), c"grid_barrier");
    let values: Vec<i32> = (0..192).collect();
    let (mut memory, mut count, mut rounds) = (alloc(768), 192, 5);
    ok(cu::cuMemcpyHtoD_v2(memory, values.as_ptr().cast(), 768));
    let mut list = [arg(&mut memory), arg(&mut count), arg(&mut rounds)];
    let (stream, list) = (CUstream::NULL, list.as_mut_ptr());
    ok(cu::cuLaunchCooperativeKernel(
        kernel, 3, 1, 1, 64, 1, 1, 0, stream, list,
    ));
    let expected: Vec<i32> = (0..192).map(|own| (own + 5) % 192 + 5).collect();
    assert_eq!(read::<i32>(memory, 192), expected);
    release();
}

#[test]
fn old_launches_run() {
    let _turn = turn();
    context();
    let store = function(load(KERNELS), c"store");
    let mut memory = alloc(4096);
    ok(cu::cuFuncSetBlockShape(store, 32, 1, 1));
    ok(cu::cuParamSetv(store, 0, arg(&mut memory), 8));
    ok(cu::cuParamSeti(store, 8, 70));
    ok(cu::cuParamSetSize(store, 12));
    ok(cu::cuLaunchGrid(store, 2, 1));
    assert!(read::<u32>(memory, 64).into_iter().eq(70..134));
    release();
}

#[test]
fn kernels_of_libraries_and_of_linked_code_run() {
    let _turn = turn();
    context();
    let text = text(KERNELS);
    let mut library = CUlibrary::NULL;
    let (none, values) = (std::ptr::null_mut(), std::ptr::null_mut());
    let (options, more) = (std::ptr::null_mut(), std::ptr::null_mut());
    let code = text.as_ptr().cast();
    ok(cu::cuLibraryLoadData(
        &mut library,
        code,
        none,
        values,
        0,
        options,
        more,
        0,
    ));
    let mut kernel = CUkernel::NULL;
    ok(cu::cuLibraryGetKernel(
        &mut kernel,
        library,
        c"store".as_ptr(),
    ));
    let mut memory = alloc(4096);
    let arguments = &mut [arg(&mut memory), arg(&mut 5_u32)];
    launch(CUfunction(kernel.0), [1, 64], CUstream::NULL, arguments);
    assert!(read::<u32>(memory, 64).into_iter().eq(5..69));
    ok(cu::cuLibraryUnload(library));

    const HEADER: &str = ".version 7.0\n.target sm_52\n.address_size 64\n";
    let uses = format!(
        "{HEADER}.extern .func (.param .b32 r) next(.param .b32 x);\n.visible .entry k(.param .u64 to) {{\n\
         .reg .b32 %r<2>; .reg .b64 %d; ld.param.u64 %d, [to]; ld.global.u32 %r0, [%d];\n\
         {{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call (b), next, (a); ld.param.b32 %r1, [b]; }}\n\
         st.global.u32 [%d], %r1; ret; }}\n"
    );
    let defines = format!(
        "{HEADER}.visible .func (.param .b32 r) next(.param .b32 x) {{\n.reg .b32 %r; ld.param.b32 %r, [x];\n\
         add.u32 %r, %r, 1; st.param.b32 [r], %r; ret; }}\n"
    );
    let (mut linker, mut image, mut size) = (CUlinkState::NULL, std::ptr::null_mut(), 0);
    ok(cu::cuLinkCreate_v2(
        0,
        std::ptr::null_mut(),
        std::ptr::null_mut(),
        &mut linker,
    ));
    for source in [&uses, &defines] {
        let (data, none) = (source.as_ptr().cast_mut().cast(), std::ptr::null());
        let kind = jit_input_type::INPUT_PTX;
        let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        ok(cu::cuLinkAddData_v2(
            linker,
            kind,
            data,
            source.len(),
            none,
            0,
            options,
            values,
        ));
    }
    ok(cu::cuLinkComplete(linker, &mut image, &mut size));
    let mut module = CUmodule::NULL;
    ok(cu::cuModuleLoadData(&mut module, image));
    ok(cu::cuLinkDestroy(linker));
    ok(cu::cuMemsetD32_v2(memory, 41, 1));
    let kernel = function(module, c"k");
    launch(kernel, [1, 1], CUstream::NULL, &mut [arg(&mut memory)]);
    assert_eq!(read::<u32>(memory, 1), [42]);
    release();
}

/// Fatbins with PTX and a cubin of `kernels/pattern.cu`, as nvcc of CUDA 13.0 writes them with `--compress-mode=speed` and
/// `size`.
#[test]
fn the_ptx_of_compressed_fatbins_runs() {
    let _turn = turn();
    context();
    let (lz4, zstandard) = (
        include_bytes!("data/lz4.fatbin").as_slice(),
        include_bytes!("data/zstandard.fatbin").as_slice(),
    );
    let (mut words, mut count) = (alloc(4000), 1000_u64);
    for (fatbin, mut seed) in [(lz4, 5_u32), (zstandard, 6)] {
        let mut module = CUmodule::NULL;
        ok(cu::cuModuleLoadFatBinary(
            &mut module,
            fatbin.as_ptr().cast(),
        ));
        let fill = function(module, c"fill_pattern");
        let arguments = &mut [arg(&mut words), arg(&mut count), arg(&mut seed)];
        launch(fill, [2, 64], CUstream::NULL, arguments);
        let expected = (0..1000_u32).map(|i| i.wrapping_mul(2_654_435_761) ^ seed);
        assert!(read::<u32>(words, 1000).into_iter().eq(expected));
        // What the cubin knows.
        let (mut registers, which) = (0, function_attribute::NUM_REGS);
        ok(cu::cuFuncGetAttribute(&mut registers, which, fill));
        assert!(registers > 0 && registers != 32, "{registers}");
        ok(cu::cuModuleUnload(module));
    }
    ok(cu::cuMemFree_v2(words));
    release();
}

/// The numbers that blocks of the kernel `order` got.
fn order() -> Vec<u32> {
    let order = function(load(KERNELS), c"order");
    let (mut to, mut number) = (alloc(4096), alloc(4));
    ok(cu::cuMemsetD32_v2(number, 0, 1));
    launch(
        order,
        [100, 1],
        CUstream::NULL,
        &mut [arg(&mut to), arg(&mut number)],
    );
    read(to, 100)
}

#[test]
fn the_order_of_blocks_is_set() {
    const NAME: &str = "the_order_of_blocks_is_set";
    if is_child() {
        context();
        println!("order: {:?}", order());
        return;
    }
    let run = |setting: &str| {
        let output = child_with(NAME, Some(setting));
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text
            .lines()
            .find_map(|line| Some(line.split_once("order: ")?.1));
        line.unwrap_or_default().to_owned()
    };
    let sequential: Vec<u32> = (0..100).collect();
    assert_eq!(run("order=sequential"), format!("{sequential:?}"));
    let random = run("order=random,seed=7");
    assert_ne!(random, format!("{sequential:?}"));
    assert_eq!(random, run("order=random,seed=7"));
    assert_ne!(random, run("order=random,seed=8"));
}
