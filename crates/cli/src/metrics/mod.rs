//! `cuguard metrics`: the figures of running processes in Prometheus' text format, printed once or served over HTTP. `cuguard run
//! --metrics` serves those of its processes in the same way.
//!
//! ```text
//!   processes ── cuguard_live::ask ──► scrape ── cuguard_report::Metrics ──┬── standard output
//!                                                                         └── http: GET /metrics
//! ```
//!
//! The command serves, and not the programs: nothing listens in a program that is audited, no thread is added to it, and one
//! target has all processes of a run. At each request the processes are asked through their sockets, as `cuguard watch` asks
//! them: [`scrape`] has who is asked, [`http`] the server. Nothing here calls the driver.

mod http;
mod scrape;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;

pub(crate) use scrape::Which;
use scrape::{Scrape, Shared};

/// The call sites of each process that have a series of their own.
const TOP: &str = "20";

/// The command's options.
#[derive(Args, Clone, Debug)]
#[command(after_help = NOTES)]
pub(crate) struct Options {
    /// Serve http://ADDRESS/metrics until the command is ended, in place of printing the metrics once: an IP address and a port.
    /// Port 0 is any free one; the address is printed to standard error
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    listen: Option<SocketAddr>,

    /// How many call sites of each process have series of their own, 0 to 1000. The rest is the call site "other"
    #[arg(long, value_name = "N", default_value = TOP, value_parser = top())]
    top: u16,

    /// Process ids: these processes and those that they started [default: all processes of this user]
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    processes: Vec<u32>,
}

/// The options of `cuguard run` for metrics.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct RunOptions {
    /// Serve live, peak, cached and refused bytes at http://ADDRESS/metrics while the program runs, for Prometheus: an IP
    /// address and a port. Port 0 is any free one; the address is printed to standard error
    #[arg(long = "metrics", value_name = "ADDRESS", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,

    /// How many call sites of each process have series of their own, 0 to 1000. The rest is the call site "other"
    #[arg(long = "metrics-top", value_name = "N", default_value = TOP, requires = "listen", value_parser = top())]
    top: u16,
}

const NOTES: &str = "\
The processes have been started under `cuguard run`, or they use the cuguard crate and have been started with LEAK_REPORT=1 (or
other words of that variable, but 0). Only the same user and root can ask them. A process has metrics from its first CUDA
context, or under `cuguard run` from its first call of the CUDA driver.

Examples:
  cuguard metrics 4711
  cuguard metrics --listen 127.0.0.1:9400
  cuguard run --metrics 127.0.0.1:9400 -- python3 train.py
  curl http://127.0.0.1:9400/metrics

The manual's chapter about recordings lists the metrics; docs/grafana/cuguard.json is a dashboard.

Exit codes:
  0  the metrics were printed
  1  none of the processes has metrics, or the address cannot be used
  2  wrong options";

fn top() -> impl clap::builder::IntoResettable<clap::builder::ValueParser> {
    clap::value_parser!(u16).range(..=1000)
}

/// An address to listen at.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "not an IP address and a port; accepted are 127.0.0.1:9400, [::1]:9400, or 0.0.0.0:9400 for all interfaces".to_owned()
    })
}

/// Runs `cuguard metrics`.
pub(crate) fn run(options: &Options) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "cuguard metrics: {why}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(options: &Options) -> Result<(), String> {
    let which = match options.processes.is_empty() {
        true => Which::OfUser,
        false => Which::Trees(options.processes.clone()),
    };
    let mut scrape = Scrape::new(which, options.top);
    if let Some(address) = options.listen {
        let failed = |error| cannot_listen("--listen", address, &error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let _ = writeln!(io::stderr(), "cuguard metrics: http://{bound}/metrics");
        let scrape = Shared::new(scrape);
        http::serve(&listener, &|| scrape.text());
        return Ok(());
    }
    match io::stdout().write_all(scrape.once()?.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Why an address cannot be used.
pub(crate) fn cannot_listen(option: &str, address: SocketAddr, error: &io::Error) -> String {
    format!("{option} {address}: cannot listen there: {error}")
}

/// Serves the metrics of the processes of a run, until this process ends: nothing waits for the threads. Returns the address.
pub(crate) fn serve_run(
    options: &RunOptions,
    address: SocketAddr,
    folder: &Path,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let scrape = Shared::new(Scrape::new(Which::OfRun(folder.to_owned()), options.top));
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || http::serve(&listener, &|| scrape.text()))?;
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn an_address_has_a_port() {
        for good in ["127.0.0.1:9400", "[::1]:0", "0.0.0.0:9400"] {
            assert_eq!(address(good).expect(good).to_string(), good);
        }
        for bad in [
            "",
            "9400",
            ":9400",
            "localhost:9400",
            "127.0.0.1",
            "127.0.0.1:65536",
            "::1:9400",
        ] {
            let error = address(bad).expect_err(bad);
            assert!(error.contains("accepted are 127.0.0.1:9400"), "{error}");
        }
    }
}
