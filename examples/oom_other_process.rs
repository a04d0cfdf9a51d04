//! Out of memory: another process holds the card.
//!
//!     cargo run --example oom_other_process
//!
//! What to see: the verdict "another process holds ...", with its number and name. On a real GPU
//! that process is this program once more, started as a child; a simulated GPU is told of one.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use cuguard::driver::DriverKind;
use cuguard::{Context, DeviceBuffer, Error, Result};

/// The child: holds three quarters of what is free until its standard input ends.
fn hold() -> Result<()> {
    let context = Context::new(0)?;
    let bytes = context.memory()?.free as usize / 4 * 3;
    let buffer = DeviceBuffer::<u8>::zeroed(&context, bytes)?;
    println!("holds {bytes}");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0]);
    drop(buffer);
    context.close()
}

fn start_holder() -> std::io::Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("hold")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line)?;
    print!("process {} {line}", child.id());
    Ok(child)
}

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("hold") {
        return hold();
    }
    let simulated = cuguard::driver::load()?.kind() == DriverKind::Simulated;
    let child = if simulated {
        let trainer = cuguard::sim::OtherProcess::new(4711, "python train.py", 3 << 30);
        cuguard::sim::set_other_processes(0, [trainer]).expect("the device has as much");
        None
    } else {
        Some(start_holder().expect("this program can be started again"))
    };
    let context = Context::new(0)?;
    let half = context.memory()?.total as usize / 2;
    match DeviceBuffer::<u8>::zeroed(&context, half) {
        Err(Error::OutOfMemory(why)) => print!("{}", why.to_text()),
        other => panic!("memory should have run out: {other:?}"),
    }
    if let Some(mut child) = child {
        drop(child.stdin.take());
        let _ = child.wait();
    }
    context.close()
}
