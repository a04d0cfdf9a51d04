//! Random programs in PTX, on the simulated GPU and a real one: the results must be the same.
//!
//! Where there is no GPU, the simulated one executes each program twice: in order, and with blocks and warps shuffled.
//!
//! ```text
//! random_ptx [--count N] [--seed S] [--jobs J] [--batch B] [--driver auto|sim] [--keep FOLDER] [--print]
//! random_ptx --replay FILE ...
//! ```
//!
//! `CUGUARD_RANDOM_PTX=count=N,seed=S,jobs=J` sets the same. A program that differs is simplified, printed, and kept in a
//! file of the folder. `--replay` runs such files on the simulated GPU again: the results must be those of the real one.

mod options;

use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::process::{Command, ExitCode, Stdio};

use cuguard_kernels::random::{self, Batch};
use cuguard_kernels::{Device, Driver};
use options::{Options, Role};

/// Differences after which a process ends.
const ENOUGH: usize = 10;

fn main() -> ExitCode {
    let options = match Options::from_args() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("random_ptx: {error}");
            return ExitCode::from(2);
        }
    };
    let done = match options.role {
        Role::List => Ok(()),
        Role::Print => {
            print!("{}", Batch::new(options.seed, options.count).text());
            Ok(())
        }
        Role::Hash => hashes(&options).map(|all| println!("{}", all.join("\n"))),
        Role::Compare => compare(&options),
        Role::Replay => replay(&options),
        Role::Start => start(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("random_ptx: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts the processes that do the work.
fn start(options: &Options) -> Result<(), String> {
    let real = if options.sim_only {
        Err("not wanted".to_owned())
    } else {
        real_device()
    };
    let on = match &real {
        Ok(name) => format!("on the simulated GPU and on {name}"),
        Err(reason) => format!("on the simulated GPU in order and shuffled (no GPU: {reason})"),
    };
    println!(
        "random_ptx: {} programs from seed {}, {on}",
        options.count, options.seed
    );
    let mut jobs = Vec::new();
    for job in 0..options.jobs {
        // Each job has seeds of its own.
        let count = options.count / options.jobs + usize::from(job < options.count % options.jobs);
        let seed = options.seed.wrapping_add((job as u64) << 32);
        let shared = |role: &str| {
            let mut command =
                Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
            let numbers = [
                ("--count", count as u64),
                ("--seed", seed),
                ("--batch", options.batch as u64),
            ];
            command.arg(role).args(
                numbers
                    .into_iter()
                    .flat_map(|(name, own)| [name.to_owned(), own.to_string()]),
            );
            command
                .args(["--keep", &options.keep])
                .env_remove("CUGUARD_SIM")
                .env_remove("CUGUARD_RANDOM_PTX");
            Ok::<Command, String>(command)
        };
        if real.is_ok() {
            let child = shared("--compare")?
                .spawn()
                .map_err(|error| error.to_string())?;
            jobs.push((seed, vec![child]));
        } else {
            let mut pair = Vec::new();
            for order in ["order=sequential", "order=random,seed=1"] {
                let mut command = shared("--hash")?;
                command.env("CUGUARD_SIM", order).stdout(Stdio::piped());
                pair.push(command.spawn().map_err(|error| error.to_string())?);
            }
            jobs.push((seed, pair));
        }
    }
    let mut failed = 0;
    for (seed, children) in jobs {
        let mut outputs = Vec::new();
        for child in children {
            let output = child
                .wait_with_output()
                .map_err(|error| error.to_string())?;
            failed += usize::from(!output.status.success());
            outputs.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        if let [one, two] = &outputs[..] {
            for (index, (one, two)) in one.lines().zip(two.lines()).enumerate() {
                if one != two {
                    failed += 1;
                    eprintln!(
                        "random_ptx: program {index} of seed {seed} depends on the order of blocks and warps"
                    );
                }
            }
        }
    }
    match failed {
        0 => {
            println!("random_ptx: no difference in {} programs", options.count);
            Ok(())
        }
        _ => Err("there are differences".to_owned()),
    }
}

fn real_device() -> Result<String, String> {
    let driver = Driver::installed()?;
    Ok(Device::new(&driver)?.name())
}

/// The batches of a process: their seeds and sizes.
fn batches(options: &Options) -> impl Iterator<Item = (u64, usize)> {
    let (batch, count, seed) = (options.batch, options.count, options.seed);
    (0..count.div_ceil(batch)).map(move |index| {
        (
            seed.wrapping_add(index as u64),
            batch.min(count - index * batch),
        )
    })
}

/// Hashes of the results of the programs on the simulated GPU.
fn hashes(options: &Options) -> Result<Vec<String>, String> {
    let driver = Driver::simulated()?;
    let device = Device::new(&driver)?;
    let mut lines = Vec::new();
    for (seed, count) in batches(options) {
        let results = Batch::new(seed, count)
            .run(&device)
            .map_err(|failure| failure.text)?;
        for result in results {
            let mut hasher = DefaultHasher::new();
            hasher.write(&result);
            lines.push(format!("{:016x}", hasher.finish()));
        }
    }
    Ok(lines)
}

/// Runs programs on both GPUs.
fn compare(options: &Options) -> Result<(), String> {
    let (simulated, installed) = (Driver::simulated()?, Driver::installed()?);
    let (simulated, real) = (Device::new(&simulated)?, Device::new(&installed)?);
    let (mut differences, mut done) = (0, 0);
    for (seed, count) in batches(options) {
        let mut batch = Batch::new(seed, count);
        match batch.compare(&simulated, &real) {
            Ok(found) => {
                for own in found {
                    differences += 1;
                    let name = format!("difference-{seed:x}-{}", own.index);
                    keep(options, &name, &own.text);
                }
            }
            Err(failure) => {
                differences += 1;
                keep(options, &format!("failure-{seed:x}"), &failure.text);
                if failure.is_lasting {
                    return Err(format!("a program of batch {seed:#x} ended the context"));
                }
            }
        }
        done += count;
        if differences >= ENOUGH {
            return Err(format!(
                "{differences} differences in {done} programs: enough"
            ));
        }
    }
    match differences {
        0 => Ok(()),
        _ => Err(format!("{differences} differences in {done} programs")),
    }
}

/// Runs differences again, on the simulated GPU.
fn replay(options: &Options) -> Result<(), String> {
    let driver = Driver::simulated()?;
    let device = Device::new(&driver)?;
    let mut failed = 0;
    for file in &options.files {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        let lines = random::replay(&text, &device).unwrap_or_else(|error| vec![error]);
        if !lines.is_empty() {
            failed += 1;
            println!("{file}:\n    {}", lines.join("\n    "));
        }
    }
    println!(
        "random_ptx: {failed} of {} files differ",
        options.files.len()
    );
    match failed {
        0 => Ok(()),
        _ => Err("there are differences".to_owned()),
    }
}

/// Prints what differs, and keeps it in a file.
fn keep(options: &Options, name: &str, text: &str) {
    let summary: Vec<&str> = text.lines().take(6).collect();
    eprintln!("random_ptx: {name}\n{}", summary.join("\n"));
    let file = format!("{}/{name}.ptx", options.keep);
    let written = fs::create_dir_all(&options.keep).and_then(|()| fs::write(&file, text));
    if let Err(error) = written {
        eprintln!("random_ptx: {file}: {error}\n{text}");
    }
}
