//! The exit handler waits for a report that another thread is writing.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::*;
use cuguard::{Context, DeviceBuffer};

/// The report goes to a pipe that is opened for reading only after the process has begun to exit.
#[test]
fn a_report_on_another_thread_is_written_before_the_process_ends() {
    const TEST: &str = "a_report_on_another_thread_is_written_before_the_process_ends";
    if part().is_some() {
        let (ready, wait) = channel();
        std::thread::spawn(move || {
            let context = Context::new(0).unwrap();
            std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 1000).unwrap());
            ready.send(()).unwrap();
            context.close()
        });
        wait.recv().unwrap();
        // By now the thread most likely waits for the reader of the pipe.
        std::thread::sleep(Duration::from_millis(200));
        std::process::exit(0);
    }
    let pipe = std::env::temp_dir().join(format!("cuguard-{}-pipe", std::process::id()));
    let name = CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the name ends with a NUL character.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let setting = format!("json,file={}", pipe.display());
    let running = std::thread::spawn(move || child(TEST, "child", &[("LEAK_REPORT", &setting)]));
    std::thread::sleep(Duration::from_millis(800));
    // Not blocking: the process may have ended already.
    let mut reader = OpenOptions::new();
    let mut reader = reader
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&pipe)
        .unwrap();
    let (mut report, begin) = (Vec::new(), Instant::now());
    while !report.ends_with(b"\n") && begin.elapsed() < Duration::from_secs(30) {
        let _ = reader.read_to_end(&mut report);
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = running.join().unwrap();
    std::fs::remove_file(&pipe).unwrap();
    succeeded(&output);
    let report = String::from_utf8_lossy(&report);
    assert!(report.contains("\"bytes\":1000"), "{report}");
}
