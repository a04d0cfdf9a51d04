//! Metrics over HTTP: a client, and a parser of the text format.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longer than anything takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A response: its head and its body.
#[derive(Debug)]
pub struct Response {
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn status(&self) -> u16 {
        let status = self.head.strip_prefix("HTTP/1.1 ").expect("a status");
        status[..3].parse().expect("a number")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines();
        lines
            .filter_map(|line| line.split_once(": "))
            .find_map(|(own, value)| (own == name).then_some(value))
    }
}

/// Sends any bytes, and returns what is sent back until the end of the connection.
pub fn exchange(address: &str, request: &[u8]) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).expect("UTF-8");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let response = Response {
        head: head.to_owned(),
        body: body.to_owned(),
    };
    if !request.starts_with(b"HEAD ") {
        let length = response.header("Content-Length").expect("a length");
        assert_eq!(length, response.body.len().to_string());
    }
    Ok(response)
}

/// The metrics at an address, with all processes: on a busy machine, one may not reply in time.
pub fn scrape(address: &str) -> Metrics {
    let begun = Instant::now();
    loop {
        let metrics = scrape_once(address);
        if metrics.total("processes_silent") == 0 {
            return metrics;
        }
        assert!(begun.elapsed() < LIMIT, "{metrics:?}");
    }
}

/// The metrics at an address.
pub fn scrape_once(address: &str) -> Metrics {
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let response = exchange(address, request.as_bytes()).expect("a response");
    assert_eq!(response.status(), 200, "{response:?}");
    let kind = response.header("Content-Type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    Metrics::parse(&response.body)
}

/// The series, by their text without the value.
#[derive(Debug, PartialEq)]
pub struct Metrics(pub BTreeMap<String, u64>);

impl Metrics {
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let series = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').expect(line);
            (name.to_owned(), value.parse().expect(line))
        });
        Self(series.collect())
    }

    /// The value of a series, as `live_bytes{device="0"}`: without the prefix of all names, and without the process.
    pub fn of(&self, process: u32, series: &str) -> Option<u64> {
        let (name, labels) = series.split_once('{').expect("labels");
        let name = format!("cuguard_{name}{{pid=\"{process}\",{labels}");
        self.0.get(&name).copied()
    }

    /// Without a process.
    pub fn total(&self, name: &str) -> u64 {
        self.0[&format!("cuguard_{name}")]
    }
}
