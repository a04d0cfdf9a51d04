//! Runs for tests of the page, and for the gallery.

use std::collections::BTreeSet;

use cuguard_registry::{Amount, PAGE, PageUse};
use cuguard_report::oom::{FailedRequest, KindUsage, OutOfMemory, Processes};
use cuguard_view::{Allocation, FOREVER, Fate, MarkKind, Run};

use super::builder::{Builder, DEVICE, MIB, PINNED, POOLED, STREAM};

const MILLISECOND: u64 = 1_000_000;

/// What the first context of a process costs.
const CONTEXT: u64 = 523 * MIB;

/// An allocation fails on a device that has three quarters of it free, with the diagnosis that `cuguard run` makes of what is alive.
pub fn fail(b: &mut Builder, site: u32, bytes: u64) {
    let alive = b.run.allocations.iter();
    let alive = alive.filter(|one| one.end == FOREVER && one.kind == DEVICE);
    let (mut pages, mut small) = (PageUse::default(), BTreeSet::new());
    let mut amount = Amount::default();
    for one in alive {
        amount += Amount::new(1, one.bytes);
        if one.bytes >= PAGE {
            pages.large_bytes += one.bytes;
            pages.large_pages += one.bytes.div_ceil(PAGE);
        } else {
            pages.small_bytes += one.bytes;
            small.extend(one.address / PAGE..=(one.address + one.bytes - 1) / PAGE);
        }
    }
    pages.small_pages = small.len() as u64;
    let device = cuguard_registry::ResourceKind::Device;
    let free = bytes / 4 * 3;
    let mut why = OutOfMemory {
        request: FailedRequest {
            operation: "cuMemAlloc_v2",
            bytes: Some(bytes),
            kind: Some(device),
            function: Some("cuMemAlloc_v2"),
            code: 2,
            code_name: "CUDA_ERROR_OUT_OF_MEMORY",
            ..FailedRequest::default()
        },
        total: Some(CONTEXT + pages.taken() + free),
        free: Some(free),
        usage: vec![KindUsage {
            kind: device,
            amount,
        }],
        pages: Some(pages),
        processes: Processes::Known(Vec::new()),
        ..OutOfMemory::default()
    };
    why.settings.audited = true;
    let thread = b.name("main");
    b.mark(MarkKind::OutOfMemory {
        bytes,
        site,
        thread,
        diagnosis: why.to_text(),
    });
}

/// A run whose end was searched for lost memory.
pub fn searched(mut run: Run, is_lost: impl Fn(&Allocation) -> bool) -> Run {
    for one in &mut run.allocations {
        if one.end == FOREVER {
            one.fate = if is_lost(one) {
                Fate::Lost
            } else {
                Fate::Reachable
            };
        }
    }
    run
}

/// Few allocations, whose figures can be computed by hand.
pub fn small() -> Run {
    let mut b = Builder::new("./solver --steps 4");
    b.mark(MarkKind::ContextCreated {
        context: 1,
        device: 0,
    });
    let grid = b.site(
        "f32",
        &[
            "!solver::grid::Grid::new|src/grid.rs|41|solver",
            "!solver::main|src/main.rs|12|solver",
            "main|||libc.so.6",
        ],
    );
    let halo = b.site(
        "f64",
        &[
            "cuguard::DeviceBuffer::zeroed|buffer.rs|90|solver",
            "!solver::halo::exchange|src/halo.rs|77|solver",
            "!solver::main|src/main.rs|20|solver",
        ],
    );
    let stage = b.site(
        "u8",
        &[
            "!solver::io::stage|src/io.rs|5|solver",
            "!solver::main|src/main.rs|30|solver",
        ],
    );
    let stream = b.site("", &["!solver::streams|src/main.rs|14|solver"]);
    b.pass(10 * MILLISECOND);
    let first = b.allocate(grid, DEVICE, 64 * MIB, "grid");
    b.allocate(stream, STREAM, 0, "");
    let pinned = b.allocate(stage, PINNED, 8 * MIB, "staging");
    for _ in 0..4 {
        b.pass(20 * MILLISECOND);
        let a = b.allocate(halo, DEVICE, 3 * MIB, "halo");
        let c = b.allocate(halo, POOLED, 1_000_000, "");
        b.pass(5 * MILLISECOND);
        b.free(a);
        b.pass(MILLISECOND);
        b.free(c);
    }
    b.allocate(halo, DEVICE, 5 * MIB, "halo");
    b.allocate(halo, DEVICE, 700, "halo");
    b.pass(10 * MILLISECOND);
    fail(&mut b, grid, 4096 * MIB);
    b.pass(10 * MILLISECOND);
    b.free(first);
    b.free(pinned);
    b.pass(10 * MILLISECOND);
    b.mark(MarkKind::ContextEnded { context: 1 });
    b.finish()
}

/// Names that would run or break the page if they were ever read as HTML or as a script.
pub fn hostile() -> Run {
    const TEXTS: [&str; 6] = [
        "<img src=x onerror=\"window.hostile=1\">",
        "</script><script>window.hostile=2</script>",
        "\"'><svg onload=window.hostile=3>",
        "{{scripts}}",
        "<!-- --> ]]> \u{202e}\u{0}\u{7}\u{2028}",
        "__proto__",
    ];
    let mut b = Builder::new("<script>window.hostile=4</script> </title><b>x");
    b.run.host = TEXTS[0].into();
    b.run.source = TEXTS[1].into();
    b.run.problems = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    b.run.kinds[0].name = TEXTS[2].into();
    for text in TEXTS {
        let site = b.site(text, &[]);
        b.run.sites[site as usize].frames = vec![cuguard_view::Frame {
            function: text.into(),
            file: text.into(),
            line: 7,
            library: text.into(),
            in_app: true,
        }];
        for count in 0..20 {
            b.pass(MILLISECOND);
            b.allocate(site, DEVICE, 4096 + count, text);
        }
    }
    // Numbers that no program has, and a broken file could.
    let largest = b.allocate(0, DEVICE, 1 << 40, "");
    b.run.allocations[largest].address = u64::MAX - 5;
    b.run.allocations[largest].stream = u64::MAX;
    b.mark(MarkKind::OutOfMemory {
        bytes: u64::MAX,
        site: 0,
        thread: 0,
        diagnosis: TEXTS.join("\n"),
    });
    b.finish()
}

/// Training of a network: parameters stay, activations come and go with each step, one cache only grows, and in the end memory runs out.
pub fn training(steps: u32, leaks: bool) -> Run {
    let mut b = Builder::new("python train.py --model gpt-small --batch 32 --steps 60");
    let torch = [
        "c10::cuda::CUDACachingAllocator::malloc|||libc10_cuda.so",
        "at::empty_cuda|||libtorch_cuda.so",
    ];
    let python = |b: &mut Builder, frames: &[&str]| {
        let all: Vec<&str> = torch
            .iter()
            .copied()
            .chain(frames.iter().copied())
            .collect();
        b.site("", &all)
    };
    let module =
        "torch::nn::modules::_call_impl|/opt/venv/torch/nn/modules/module.py|1518|python3.11";
    let step = "!train_step|/home/me/gpt/train.py|88|python3.11";
    let main = "!main|/home/me/gpt/train.py|131|python3.11";
    let weights = python(
        &mut b,
        &[
            "!__init__|/home/me/gpt/model.py|22|python3.11",
            "!build|/home/me/gpt/model.py|60|python3.11",
            main,
        ],
    );
    let adam = python(
        &mut b,
        &[
            "_init_group|/opt/venv/torch/optim/adamw.py|110|python3.11",
            "step|/opt/venv/torch/optim/adamw.py|180|python3.11",
            step,
            main,
        ],
    );
    let attention = python(
        &mut b,
        &[
            "at::native::bmm|||libtorch_cuda.so",
            "!forward|/home/me/gpt/attention.py|47|python3.11",
            module,
            step,
            main,
        ],
    );
    let mlp = python(
        &mut b,
        &[
            "at::native::gelu|||libtorch_cuda.so",
            "!forward|/home/me/gpt/mlp.py|19|python3.11",
            module,
            step,
            main,
        ],
    );
    let logits = python(
        &mut b,
        &[
            "at::native::linear|||libtorch_cuda.so",
            "!forward|/home/me/gpt/model.py|74|python3.11",
            module,
            step,
            main,
        ],
    );
    let backward = python(
        &mut b,
        &[
            "torch::autograd::Engine::evaluate_function|||libtorch_cpu.so",
            "torch::autograd::Engine::thread_main|||libtorch_cpu.so",
        ],
    );
    let cache = python(
        &mut b,
        &[
            "!remember|/home/me/gpt/metrics.py|33|python3.11",
            "!log_step|/home/me/gpt/metrics.py|51|python3.11",
            step,
            main,
        ],
    );
    let loader = b.site(
        "",
        &[
            "cudaHostAlloc|||libcudart.so.12",
            "!prefetch|/home/me/gpt/data.py|64|python3.11",
            main,
        ],
    );
    let workspace = b.site(
        "",
        &[
            "cublasCreate_v2|||libcublas.so.12",
            "at::cuda::getCurrentCUDABlasHandle|||libtorch_cuda.so",
            step,
            main,
        ],
    );

    b.pass(300 * MILLISECOND);
    b.mark(MarkKind::ContextCreated {
        context: 1,
        device: 0,
    });
    b.pass(200 * MILLISECOND);
    let mut kept = Vec::new();
    for layer in 0..24 {
        b.pass(6 * MILLISECOND);
        for bytes in [24 * MIB, 8 * MIB, 32 * MIB, 32 * MIB, 6144] {
            kept.push(b.allocate(
                weights,
                DEVICE,
                bytes,
                if layer == 0 {
                    "embedding"
                } else {
                    "parameters"
                },
            ));
        }
    }
    kept.push(b.allocate(loader, PINNED, 96 * MIB, "prefetch"));
    for number in 0..steps {
        if number == 1 {
            kept.push(b.allocate(workspace, DEVICE, 64 * MIB, "workspace"));
        }
        if number == 2 {
            for _ in 0..24 {
                b.pass(MILLISECOND);
                kept.push(b.allocate(adam, DEVICE, 90 * MIB, "optimizer"));
            }
        }
        b.pass(4 * MILLISECOND);
        let mut activations = Vec::new();
        // Sequences differ in length, and so do activations.
        let length = 10 + b.random(6);
        for _ in 0..24 {
            b.pass(2 * MILLISECOND);
            activations.push(b.allocate(attention, DEVICE, length * 5 * MIB, "activations"));
            activations.push(b.allocate(mlp, DEVICE, length * 3 * MIB + 12_288, "activations"));
            let scratch = b.allocate(attention, POOLED, 2 * MIB + 40_000, "");
            b.pass(MILLISECOND);
            b.free(scratch);
        }
        let output = b.allocate(logits, DEVICE, length * 28 * MIB, "logits");
        let mut gradients = Vec::new();
        while let Some(activation) = activations.pop() {
            b.pass(MILLISECOND);
            gradients.push(b.allocate(backward, DEVICE, 20 * MIB, "gradients"));
            b.free(activation);
        }
        b.free(output);
        b.pass(8 * MILLISECOND);
        for gradient in gradients {
            b.free(gradient);
        }
        if leaks {
            for _ in 0..3 {
                kept.push(b.allocate(cache, DEVICE, 7 * MIB + 300_000, "metrics"));
            }
        }
    }
    if leaks {
        b.pass(4 * MILLISECOND);
        fail(&mut b, logits, 6144 * MIB);
        b.pass(60 * MILLISECOND);
    }
    for index in kept {
        let forgotten = leaks && b.run.allocations[index].site == cache;
        if !forgotten {
            b.free(index);
        }
    }
    b.pass(30 * MILLISECOND);
    b.mark(MarkKind::ContextEnded { context: 1 });
    // A list keeps the metrics.
    searched(b.finish(), |_| false)
}

/// Small blocks that live long, between large ones that do not: pages stay, nearly empty.
pub fn fragmented() -> Run {
    let mut b = Builder::new("./server --cache 512");
    b.mark(MarkKind::ContextCreated {
        context: 1,
        device: 0,
    });
    let request = b.site(
        "f32",
        &[
            "!server::request::load|src/request.rs|88|server",
            "!server::serve|src/main.rs|40|server",
        ],
    );
    let header = b.site(
        "u32",
        &[
            "!server::cache::Entry::header|src/cache.rs|23|server",
            "!server::cache::insert|src/cache.rs|57|server",
            "!server::serve|src/main.rs|44|server",
        ],
    );
    let batch = b.site(
        "f16",
        &[
            "!server::batch::grow|src/batch.rs|112|server",
            "!server::serve|src/main.rs|47|server",
        ],
    );
    let mut small = Vec::new();
    let mut large = Vec::new();
    for _ in 0..1800 {
        b.pass(MILLISECOND / 2);
        small.push(b.allocate(header, DEVICE, 192 * 1024 + 512, "cache entry"));
        if b.random(3) == 0 {
            large.push(b.allocate(request, DEVICE, 14 * MIB, "request"));
        }
        if large.len() > 24 {
            let index = b.random(24) as usize;
            let victim = large.swap_remove(index);
            b.free(victim);
        }
    }
    // Most entries are evicted; the few that stay keep their pages.
    let mut index = 0;
    small.retain(|allocation| {
        index += 1;
        if index % 11 == 0 {
            return true;
        }
        b.pass(MILLISECOND / 10);
        b.free(*allocation);
        false
    });
    b.pass(50 * MILLISECOND);
    for _ in 0..12 {
        b.pass(8 * MILLISECOND);
        let large_one = b.allocate(batch, DEVICE, 60 * MIB, "batch");
        large.push(large_one);
    }
    fail(&mut b, batch, 512 * MIB);
    b.pass(100 * MILLISECOND);
    for allocation in large.into_iter().chain(small) {
        b.free(allocation);
    }
    b.mark(MarkKind::ContextEnded { context: 1 });
    b.finish()
}

/// The ranks of one job; the third keeps more than the others.
pub fn ranks() -> Vec<Run> {
    (0..4)
        .map(|rank| {
            let mut run = training(14, rank == 2);
            run.rank = Some(rank);
            run.pid += rank;
            run.host = format!("node-{}", rank / 2);
            run.source = format!("rank-{rank}.cgr");
            run
        })
        .collect()
}

/// A run of about `events` events.
pub fn many(events: usize) -> Run {
    let mut b = Builder::new("./simulation --long");
    let mut sites = Vec::new();
    for number in 0..400 {
        let function = format!(
            "!simulation::module{}::kernel{number}|src/module{}.rs|{}|simulation",
            number % 20,
            number % 20,
            10 + number
        );
        let caller = format!(
            "!simulation::module{}::run|src/module{}.rs|7|simulation",
            number % 20,
            number % 20
        );
        sites.push(b.site(
            "f32",
            &[
                "cuguard::DeviceBuffer::zeroed|buffer.rs|90|simulation",
                &function,
                &caller,
                "!simulation::main|src/main.rs|9|simulation",
            ],
        ));
    }
    let labels: Vec<String> = (0..30).map(|number| format!("field {number}")).collect();
    let mut alive = Vec::new();
    for _ in 0..events / 2 {
        let pause = 500 + b.random(9000);
        b.pass(pause);
        let site = b.random(400);
        let bytes = (1 + b.random(64)) * (256 << b.random(8));
        let label = &labels[site as usize % 30];
        let index = b.allocate(sites[site as usize], DEVICE, bytes, label);
        alive.push(index);
        let wanted = 1500 + b.random(1000) as usize;
        while alive.len() > wanted {
            let place = b.random(alive.len() as u64) as usize;
            let victim = alive.swap_remove(place);
            b.free(victim);
        }
    }
    b.finish()
}
