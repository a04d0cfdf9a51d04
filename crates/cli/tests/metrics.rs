//! `cuguard run --metrics` and `cuguard metrics`, on programs that run on the simulated GPU.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use cuguard::prelude::*;

use crate::support::audited::{
    compile, cuguard_run, folder, live_program, output, subfolder, text,
};
use crate::support::cuguard;
use crate::support::metrics::{Metrics, exchange, scrape, scrape_once};
use crate::support::running::{send, wait_until};

/// The program that uses two devices. `None` without a C compiler, with a line on standard error.
fn metered() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    // Says so in each test, without a compiler.
    live_program()?;
    let program = PROGRAM.get_or_init(|| {
        let program = folder().join("program").join("metered");
        compile(&program, include_str!("support/metered.c"), &[])
    });
    program.as_deref()
}

/// The program that has memory where it has no context. `None` without a C compiler, with a line on standard error.
fn located() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    live_program()?;
    let program = PROGRAM.get_or_init(|| {
        let program = folder().join("program").join("located");
        compile(&program, include_str!("support/located.c"), &[])
    });
    program.as_deref()
}

/// A command whose output is read as it comes.
struct Piped {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Piped {
    fn start(command: &mut Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped
            .stderr(Stdio::piped())
            .spawn()
            .expect("it can be started");
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().expect("a pipe")),
            stderr: BufReader::new(child.stderr.take().expect("a pipe")),
            child,
        }
    }

    /// `cuguard run --metrics` of a program, and the address.
    fn run(arguments: &[&str], program: &[&str]) -> (Self, String) {
        let mut command = cuguard_run(&["--metrics", "127.0.0.1:0"]);
        command.env("XDG_RUNTIME_DIR", subfolder(&runtime()));
        command.env("CUGUARD_SIM", "devices=2");
        command.args(arguments).arg("--").args(program);
        let mut run = Self::start(&mut command);
        let address = address(&mut run.stderr, "cuguard run: metrics at http://");
        (run, address)
    }

    /// The rest of the next line of standard output that starts so.
    fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).expect("a line") == 0 {
                let mut stderr = String::new();
                let _ = self.stderr.read_to_string(&mut stderr);
                panic!("it ended: {stderr}");
            }
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    fn ready(&mut self) -> u32 {
        self.line("ready ").parse().expect("a process id")
    }

    /// Has the program do this, and waits until it is done.
    fn act(&mut self, what: &str) {
        for byte in what.chars() {
            let stdin = self.stdin.as_mut().expect("its input is open");
            write!(stdin, "{byte}")
                .and_then(|()| stdin.flush())
                .expect("it reads");
            self.line(&format!("done {byte}"));
        }
    }

    /// Ends its input, and returns its exit code and the rest of what it prints on standard error.
    fn end(mut self) -> (Option<i32>, String) {
        drop(self.stdin.take());
        let mut stderr = String::new();
        let _ = self.stderr.read_to_string(&mut stderr);
        (self.child.wait().expect("it ends").code(), stderr)
    }
}

/// A new name for a folder of sockets.
fn runtime() -> String {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    format!("metrics-runtime-{number}")
}

/// The address in the first line that starts so.
fn address(stderr: &mut impl BufRead, start: &str) -> String {
    loop {
        let mut line = String::new();
        assert_ne!(
            stderr.read_line(&mut line).expect("a line"),
            0,
            "no address"
        );
        if let Some(rest) = line.strip_prefix(start) {
            let address = rest.trim_end().strip_suffix("/metrics");
            return address.expect("the path").to_owned();
        }
    }
}

const MIB: u64 = 1 << 20;

#[test]
fn figures_by_device_kind_and_call_site_are_exact() {
    let Some(program) = metered() else { return };
    let (mut run, address) = Piped::run(&[], &[program.to_str().unwrap(), "7"]);
    let process = run.ready();
    let first = scrape(&address);
    assert_eq!(
        (first.total("processes"), first.total("processes_silent")),
        (1, 0)
    );
    assert_eq!(
        first.of(process, "process_info{command=\"metered\"}"),
        Some(1)
    );
    // Nothing is cached yet, and it is known from the next call on.
    assert_eq!(
        first.of(process, "device_memory_cached_bytes{device=\"1\"}"),
        None
    );

    run.act("lllfohsrr");
    let now = scrape(&address);
    let of = |series: &str| now.of(process, series);
    let device = |name: &str, device: u32| of(&format!("{name}{{device=\"{device}\"}}"));
    assert_eq!(device("device_memory_live_bytes", 0), Some(2 * MIB));
    assert_eq!(device("device_memory_live_allocations", 0), Some(2));
    assert_eq!(device("device_memory_peak_bytes", 0), Some(3 * MIB));
    // Stream-ordered memory belongs to no context; it is on the device of its pool.
    assert_eq!(device("device_memory_live_bytes", 1), Some(2 * MIB));
    assert_eq!(device("device_memory_peak_bytes", 1), Some(2 * MIB));
    assert_eq!(device("device_memory_cached_bytes", 0), Some(0));
    assert_eq!(device("refused_allocations_total", 0), Some(0));
    assert_eq!(device("refused_allocations_total", 1), Some(2));
    assert_eq!(device("refused_bytes_total", 1), Some(2 << 50));
    assert_eq!(of("memory_live_bytes{kind=\"device\"}"), Some(2 * MIB));
    assert_eq!(of("memory_peak_bytes{kind=\"device\"}"), Some(3 * MIB));
    assert_eq!(
        of("memory_live_bytes{kind=\"stream_ordered\"}"),
        Some(2 * MIB)
    );
    assert_eq!(of("memory_live_bytes{kind=\"pinned\"}"), Some(1 << 16));
    assert_eq!(of("memory_live_bytes{kind=\"stream\"}"), None);
    assert_eq!(of("live_resources{kind=\"stream\"}"), Some(1));
    assert_eq!(of("live_resources{kind=\"context\"}"), Some(2));
    assert_eq!(of("allocations_total{kind=\"device\"}"), Some(3));
    assert_eq!(of("frees_total{kind=\"device\"}"), Some(1));

    // Call sites have names with lines, and add up.
    let sites = |name: &str, kind: &str| -> Vec<(String, u64)> {
        let start = format!("cuguard_{name}{{pid=\"{process}\",kind=\"{kind}\",site=\"");
        let series = now.0.iter();
        let found = series.filter_map(|(text, value)| Some((text.strip_prefix(&start)?, *value)));
        found
            .map(|(site, value)| (site.trim_end_matches("\"}").to_owned(), value))
            .collect()
    };
    let device_sites = sites("call_site_live_bytes", "device");
    assert_eq!(device_sites.len(), 2, "{device_sites:?}");
    let load = device_sites
        .iter()
        .find(|(site, _)| site.starts_with("load "))
        .expect("load");
    assert!(load.0.contains(".c:") && load.1 == 2 * MIB, "{load:?}");
    assert!(
        device_sites.contains(&("other".to_owned(), 0)),
        "{device_sites:?}"
    );
    let counts = sites("call_site_live_allocations", "stream_ordered");
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 1);

    // What the driver's pool keeps: as the program itself sees it.
    run.act("O");
    scrape(&address);
    run.act("n");
    let after = scrape(&address);
    let stdin = run.stdin.as_mut().expect("its input is open");
    stdin.write_all(b"q").expect("it reads");
    let unused: u64 = run.line("unused ").parse().expect("a number");
    assert!(unused >= 2 * MIB, "{unused}");
    let cached = after.of(process, "device_memory_cached_bytes{device=\"1\"}");
    assert_eq!(cached, Some(unused));
    assert_eq!(
        after.of(process, "device_memory_live_bytes{device=\"1\"}"),
        Some(0)
    );
    assert_eq!(
        after.of(process, "device_memory_peak_bytes{device=\"1\"}"),
        Some(2 * MIB)
    );

    // The end is that of the program; a client that sends nothing does not delay it, and nothing listens any more.
    let idle = TcpStream::connect(&address).expect("it listens");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(7), "{stderr}");
    assert!(stderr.contains("cuguard: process "), "{stderr}");
    assert!(TcpStream::connect(&address).is_err());
    drop(idle);
}

#[test]
fn memory_is_counted_where_it_is_and_not_where_the_context_is() {
    let Some(program) = located() else { return };
    // The host's pool before and after the first pool of a device.
    for order in ["dh", "hd"] {
        let (mut run, address) = Piped::run(&[], &[program.to_str().unwrap()]);
        let process = run.ready();
        run.act(order);
        let now = scrape(&address);
        let of = |series: &str| now.of(process, series);
        let live = |device: &str| of(&format!("device_memory_live_bytes{{device=\"{device}\"}}"));
        assert_eq!(live("1"), Some(4 * MIB), "{order}: {now:?}");
        assert_eq!(live("0").unwrap_or(0), 0, "{order}: {now:?}");
        assert_eq!(run.end().0, Some(0), "{order}");
    }
}

#[test]
fn a_capture_is_not_invalidated() {
    let Some(program) = located() else { return };
    let (mut run, address) = Piped::run(&[], &[program.to_str().unwrap()]);
    run.ready();
    run.act("c");
    // The next calls query what pools keep; the refused one is diagnosed.
    scrape(&address);
    run.act("ee");
    scrape(&address);
    run.act("emC");
    let (code, stderr) = run.end();
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stderr.contains("cuMemCreate"), "{stderr}");
}

#[test]
fn the_name_of_a_program_may_have_spaces() {
    let Some(program) = metered() else { return };
    let copy = subfolder("metrics program").join("my program");
    std::fs::copy(program, &copy).expect("it can be copied");
    let (mut run, address) = Piped::run(&[], &[copy.to_str().unwrap(), "secret"]);
    let process = run.ready();
    let info = "process_info{command=\"my program\"}";
    assert_eq!(scrape(&address).of(process, info), Some(1));
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn several_processes_have_series_of_their_own() {
    let Some(program) = metered() else { return };
    let program = program.to_str().unwrap();
    // In a script, background processes read nothing unless they are told to.
    let script = format!("exec 3<&0; {program} <&3 & {program} <&3 & wait");
    let (mut run, address) = Piped::run(&[], &["sh", "-c", &script]);
    let processes = BTreeSet::from([run.ready(), run.ready()]);
    assert_eq!(processes.len(), 2);
    // Either of them reads it.
    run.act("lll");
    let now = scrape(&address);
    assert_eq!(now.total("processes"), 2);
    let live = |process: &u32| {
        let live = now.of(*process, "device_memory_live_bytes{device=\"0\"}");
        // Without memory so far, it has no device.
        live.unwrap_or(0)
    };
    assert_eq!(processes.iter().map(live).sum::<u64>(), 3 * MIB);
    for process in &processes {
        assert_eq!(
            now.of(*process, "process_info{command=\"metered\"}"),
            Some(1)
        );
    }
    // One that is stopped is left out, and keeps no other from replying.
    let stopped = *processes.first().expect("two");
    send(stopped, libc::SIGSTOP);
    let mut now = None;
    wait_until("the other replies", || {
        let metrics = scrape_once(&address);
        let replies = metrics.total("processes") == 1;
        now = Some(metrics);
        replies
    });
    let now = now.expect("it was asked");
    assert_eq!(now.total("processes_silent"), 1);
    send(stopped, libc::SIGCONT);
    assert_eq!(now.of(stopped, "process_info{command=\"metered\"}"), None);
    assert_eq!(run.end().0, Some(0));
}

/// Before the program uses the driver, and where reports are turned off by the environment.
#[test]
fn a_run_has_metrics_from_the_start() {
    let Some(program) = live_program() else {
        return;
    };
    let mut command = cuguard_run(&["--metrics", "[::1]:0"]);
    command
        .env("XDG_RUNTIME_DIR", subfolder(&runtime()))
        .env("LEAK_REPORT", "0");
    if TcpListener::bind("[::1]:0").is_err() {
        command = cuguard_run(&["--metrics", "127.0.0.1:0"]);
        command
            .env("XDG_RUNTIME_DIR", subfolder(&runtime()))
            .env("LEAK_REPORT", "0");
    }
    let mut run = Piped::start(command.arg("--").arg(program).arg("unused"));
    let address = address(&mut run.stderr, "cuguard run: metrics at http://");
    let process = run.ready();
    assert_eq!(scrape(&address).total("processes"), 0);
    let stdin = run.stdin.as_mut().expect("its input is open");
    stdin.write_all(b"u").expect("it reads");
    let live = || scrape(&address).of(process, "device_memory_live_bytes{device=\"0\"}");
    wait_until("it allocates", || live() == Some(4 * MIB));
    assert_eq!(run.end().0, Some(0));
}

#[test]
fn clients_that_misbehave_do_no_harm() {
    let (mut run, address) = Piped::run(&[], &["sh", "-c", "echo ready 1; read line; exit 3"]);
    run.ready();
    // More than are served at once.
    let idle: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(&address).expect("it listens"))
        .collect();
    let status = |request: &[u8]| exchange(&address, request).expect("a response").status();
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 404);
    assert_eq!(
        status(b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
        405
    );
    assert_eq!(status(b"\x16\x03\x01\x00\xa5\x01\r\n\r\n"), 400);
    let head = exchange(&address, b"HEAD /metrics HTTP/1.0\r\n\r\n").expect("a response");
    assert_eq!((head.status(), head.body.as_str()), (200, ""));
    assert_ne!(head.header("Content-Length"), Some("0"));
    // It may be closed before all of it is sent.
    let long = [
        b"GET /metrics HTTP/1.1\r\nA: ".as_slice(),
        &vec![b'a'; 9 << 10],
    ]
    .concat();
    assert_eq!(status(&long), 431);
    let mut gone = TcpStream::connect(&address).expect("it listens");
    gone.write_all(b"GET /metr").expect("it can be sent");
    drop(gone);
    assert_eq!(scrape(&address).total("processes"), 0);
    drop(idle);
    let stdin = run.stdin.as_mut().expect("its input is open");
    stdin.write_all(b"\n").expect("it reads");
    assert_eq!(run.end().0, Some(3));
}

#[test]
fn an_address_that_cannot_be_used_is_an_error_and_nothing_is_started() {
    let marker = subfolder("metrics-refused").join("started");
    let record = marker.with_file_name("old.cgr");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken
        .local_addr()
        .map(|address| (taken, address.to_string()))
        .expect("its address");
    let refused = |arguments: &[&str]| {
        let mut command = cuguard_run(arguments);
        let ended = output(command.args(["--", "touch", marker.to_str().unwrap()]));
        assert_eq!(ended.status.code(), Some(2));
        assert!(!marker.exists() && !record.exists());
        text(&ended.stderr)
    };
    for bad in ["9400", "localhost:9400", "127.0.0.1", "127.0.0.1:99999"] {
        let stderr = refused(&["--metrics", bad]);
        let why = format!(
            "invalid value '{bad}' for '--metrics <ADDRESS>': not an IP address and a port; accepted are 127.0.0.1:9400, "
        );
        assert!(stderr.contains(&why), "{stderr}");
    }
    let stderr = refused(&["--metrics", &taken.1, "--record", record.to_str().unwrap()]);
    let why = format!(
        "cuguard run: --metrics {}: cannot listen there: Address already in use",
        taken.1
    );
    assert!(stderr.starts_with(&why), "{stderr}");
    let stderr = refused(&["--metrics", "192.0.2.1:9400"]);
    assert!(
        stderr.starts_with("cuguard run: --metrics 192.0.2.1:9400: cannot listen there: "),
        "{stderr}"
    );
    assert!(refused(&["--metrics-top", "5"]).contains("--metrics"));
    let ended = output(&mut cuguard("auto", &["metrics", "--listen", &taken.1]));
    assert_eq!(ended.status.code(), Some(1));
    let why = format!(
        "cuguard metrics: --listen {}: cannot listen there: ",
        taken.1
    );
    assert!(text(&ended.stderr).starts_with(&why));
}

const CHILD: &str = "CUGUARD_TEST_METRICS_CHILD";

/// A program that uses the crate. Without the variable this is not a test.
#[test]
fn child() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let context = Context::new(0).unwrap();
    let _weights = DeviceBuffer::<u8>::zeroed(&context, 3 << 20)
        .unwrap()
        .with_label("weights");
    println!("\nready {}", std::process::id());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

#[test]
fn a_program_with_the_crate_is_printed_and_served() {
    let sockets = subfolder(&runtime());
    let mut child = cuguard_testing::test_command("child");
    let words = [
        ("CUGUARD_DRIVER", "sim"),
        ("LEAK_REPORT", "1"),
        (CHILD, "1"),
    ];
    let mut child = Piped::start(child.envs(words).env("XDG_RUNTIME_DIR", &sockets));
    let process = child.ready();
    let command = |arguments: &[&str]| {
        let mut command = cuguard("auto", arguments);
        command
            .env("XDG_RUNTIME_DIR", &sockets)
            .env_remove("LEAK_REPORT");
        command
    };
    let id = process.to_string();
    let printed = output(&mut command(&["metrics", &id, "--top", "1"]));
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    let printed = Metrics::parse(&text(&printed.stdout));
    assert_eq!(
        printed.of(process, "device_memory_live_bytes{device=\"0\"}"),
        Some(3 * MIB)
    );
    // The context has no pool of the crate, and what those of the driver hold is not known.
    assert_eq!(
        printed.of(process, "device_memory_cached_bytes{device=\"0\"}"),
        None
    );
    assert_eq!(
        printed.of(process, "refused_bytes_total{device=\"0\"}"),
        Some(0)
    );
    let site = printed
        .0
        .keys()
        .find(|series| series.contains("metrics.rs:"))
        .expect("its line");
    assert!(
        site.contains("child") && !site.contains("weights"),
        "{site}"
    );
    // All processes of the user; others may run on this machine.
    let all = output(&mut command(&["metrics", "--top", "1"]));
    let all = Metrics::parse(&text(&all.stdout));
    for (series, value) in printed.0.iter().filter(|(series, _)| series.contains(&id)) {
        assert_eq!(all.0.get(series), Some(value), "{series}");
    }

    let serve = ["metrics", "--listen", "127.0.0.1:0", "--top", "1", &id];
    let mut server = Piped::start(&mut command(&serve));
    let address = address(&mut server.stderr, "cuguard metrics: http://");
    assert_eq!(scrape(&address), printed);
    assert_eq!(child.end().0, Some(0));
    let none = scrape(&address);
    assert_eq!((none.total("processes"), none.0.len()), (0, 2));
    server.child.kill().expect("it runs");
    server.end();

    // Others may run on this machine.
    let all = output(&mut command(&["metrics"]));
    let (stdout, stderr) = (text(&all.stdout), text(&all.stderr));
    if all.status.success() {
        assert_ne!(Metrics::parse(&stdout).total("processes"), 0);
    } else {
        assert_eq!((all.status.code(), stdout.as_str()), (Some(1), ""));
        assert!(
            stderr.starts_with("cuguard metrics: ") && stderr.lines().count() == 1,
            "{stderr}"
        );
    }
    // Who names a process is told why there are no figures of it.
    let missing = output(&mut command(&["metrics", &id]));
    assert_eq!(missing.status.code(), Some(1));
    let why = format!("cuguard metrics: there is no process {process}\n");
    assert_eq!(text(&missing.stderr), why);
}

/// The dashboard must not name a metric that does not exist, and leaves none out.
#[test]
fn the_dashboard_has_all_metrics() {
    let Some(program) = metered() else { return };
    let (mut run, address) = Piped::run(&[], &[program.to_str().unwrap()]);
    run.ready();
    let response = exchange(&address, b"GET /metrics HTTP/1.1\r\n\r\n").expect("a response");
    run.end();
    let types = response
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let exposed: BTreeSet<&str> = types.filter_map(|line| line.split(' ').next()).collect();

    let text = include_str!("../../../docs/grafana/cuguard.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).expect("JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        assert!(
            panel["title"]
                .as_str()
                .is_some_and(|title| !title.is_empty())
        );
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{panel}");
            queries.push(target["expr"].as_str().expect("a query"));
        }
    }
    for variable in dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
    {
        queries.extend(variable["definition"].as_str());
    }
    let words = queries.iter().flat_map(|query| {
        query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
    });
    let used: BTreeSet<&str> = words.filter(|word| word.starts_with("cuguard_")).collect();
    assert_eq!(used, exposed);
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .expect("panels")
        .iter()
        .map(|panel| &panel["id"])
        .collect();
    let distinct: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), ids.len());
}
