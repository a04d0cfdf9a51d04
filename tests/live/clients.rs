//! Many, malformed and slow clients of a server: they are answered, and the program does not notice.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use std::{fs, thread};

use cuguard_live::{Request, ask};

use super::child::DESCRIPTORS;
use super::{DUMP, LIMIT, Running, json};

/// A connection to the server of a child, with a request.
fn connect(running: &Running, request: &[u8]) -> UnixStream {
    let name = format!("cuguard/{}.sock", running.process());
    let mut stream = UnixStream::connect(running.folder.join(name)).unwrap();
    // The server may have closed it already.
    let _ = stream.write_all(request);
    stream
}

/// What a server replies up to the end, or to the reset after more bytes than a request has.
fn reply(mut stream: UnixStream) -> String {
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    String::from_utf8(reply).unwrap()
}

impl Running {
    /// Has the child carry out a command; returns how much it has worked so far.
    fn command(&mut self, command: &str) -> u32 {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{command}").unwrap();
        self.line_with("done ").parse().unwrap()
    }

    /// How many entries a folder of the child in `/proc` has.
    fn count(&self, name: &str) -> usize {
        let folder = format!("/proc/{}/{name}", self.process());
        fs::read_dir(folder).unwrap().count()
    }

    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().split(' ').next().unwrap();
        kib.parse::<u64>().unwrap() << 10
    }

    /// The processor time of a thread of the child, in hundredths of a second.
    fn ticks(&self, name: &str) -> u64 {
        let folder = format!("/proc/{}/task", self.process());
        let mut threads = fs::read_dir(folder).unwrap().flatten();
        let named = |text: &str| text.contains(&format!("({name})"));
        let stat = threads.find_map(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat"));
            stat.ok().filter(|text| named(text))
        });
        let stat = stat.expect("there is such a thread");
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
        // In user and in system mode: the 14th and 15th field of the line, and the second is the name.
        fields[12..14]
            .iter()
            .map(|field| field.parse::<u64>().unwrap())
            .sum()
    }

    /// Waits until the child has as many descriptors and threads as before: connections are closed behind their last byte.
    #[track_caller]
    fn settles_at(&self, before: [usize; 2]) {
        let begun = Instant::now();
        // The server opens a file for a moment each second, so there may have been one more before.
        while self.count("fd") > before[0] || self.count("task") > before[1] {
            assert!(begun.elapsed() < LIMIT, "{before:?} before");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

const UNKNOWN: &str = "error unknown request; accepted: dump, stats, report, peak, trim\n";

/// 100,000 requests, most of them malformed: all are answered, and nothing is left of them.
#[test]
fn a_server_withstands_many_and_malformed_requests() {
    let mut running = Running::start("served", Some("1,silent"));
    assert!(reply(connect(&running, b"dump json no-search\n")).len() > 400_000);
    let before = [running.count("fd"), running.count("task")];
    let resident = running.resident();
    let long = [b'x'; 300];
    let malformed: [&[u8]; 8] = [
        b"\n",
        b"dump\n",
        b"stats -1\n",
        b"\xff\xfe\0\x01\n",
        b"report now\n",
        b"stats 1\nstats 1\n",
        b"trim 00\n",
        &long,
    ];
    for round in 0..12_500 {
        for request in malformed {
            let reply = reply(connect(&running, request));
            assert_eq!(reply, UNKNOWN, "{}", request.escape_ascii());
        }
        if round % 250 == 0 {
            assert!(reply(connect(&running, b"stats 3\n")).starts_with("ok\n{"));
            // Closed without a request, and before the reply.
            drop(connect(&running, b""));
            drop(connect(&running, b"stats 3\n"));
            drop(connect(&running, b"dump text no-search\n"));
        }
    }
    running.settles_at(before);
    let grown = running.resident().saturating_sub(resident);
    assert!(grown < 32 << 20, "{grown} bytes more");
    assert!(running.command("") > 0);
    assert!(running.end().status.success());
}

/// Clients that send nothing, half a line, or read nothing of a long reply: others are served, and the program works.
#[test]
fn clients_that_stand_still_keep_nobody_from_a_reply() {
    let mut running = Running::start("served", Some("1,silent"));
    let before = [running.count("fd"), running.count("task")];
    let slow: [&[u8]; 3] = [b"", b"dump js", b"dump json no-search\n"];
    let mut slow: Vec<UnixStream> = (0..12)
        .map(|number| connect(&running, slow[number % slow.len()]))
        .collect();
    for _ in 0..2 {
        let stats = ask(running.process(), Request::Stats { sites: 3 }).unwrap();
        assert_eq!(json(&stats[0])["process"], running.process());
        let report = ask(running.process(), DUMP).unwrap();
        assert_eq!(json(&report[0])["reason"], "requested");
    }
    // Descriptors are bounded whatever the number of clients.
    assert!(running.count("fd") <= before[0] + 8);
    let worked = running.command("");
    // One that hangs up in the middle of its reply.
    for _ in 0..5 {
        let mut stream = connect(&running, b"dump json no-search\n");
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    // A client whose reply was not sent to its end has an error, not a short report.
    for stream in &mut slow {
        let mut reply = Vec::new();
        let end = stream.read_to_end(&mut reply);
        if reply.starts_with(b"ok\n") && end.is_ok() {
            json(str::from_utf8(&reply[3..]).unwrap());
        }
    }
    drop(slow);
    assert!(ask(running.process(), DUMP).is_ok());
    running.settles_at(before);
    assert!(running.command("") >= worked);
    assert!(running.end().status.success());
}

/// A program without descriptors works on, and its server replies when there are some again. The last ones are the program's.
#[test]
fn descriptors_are_left_to_the_program() {
    let mut running = Running::start("served", Some("1,silent"));
    let before = [running.count("fd"), running.count("task")];
    running.command("exhaust");
    // It may have inherited one with a greater number.
    assert!(running.count("fd") >= DESCRIPTORS);
    // They wait in the queue of the socket.
    let waiting: Vec<_> = (0..20).map(|_| connect(&running, b"stats 1\n")).collect();
    let worked = running.command("exhaust");
    running.command("release");
    for stream in waiting {
        assert!(reply(stream).starts_with("ok\n{"));
    }
    running.settles_at(before);
    running.command("nearly");
    let waiting: Vec<_> = (0..20).map(|_| connect(&running, b"stats 1\n")).collect();
    running.command("open");
    assert!(running.command("release") >= worked);
    for stream in waiting {
        assert!(reply(stream).starts_with("ok\n{"));
    }
    assert!(ask(running.process(), DUMP).is_ok());
    running.settles_at(before);
    assert!(running.end().status.success());
}

/// A program that limits itself to fewer descriptors than the server waits for: it is not served, and no thread of it is busy.
#[test]
fn a_server_without_descriptors_waits() {
    let running = Running::start("limited", Some("1,silent"));
    thread::sleep(Duration::from_secs(2));
    let ticks = running.ticks("cuguard-live");
    assert!(running.end().status.success());
    // Of a hundred a second.
    assert!(ticks < 10, "{ticks}");
}
