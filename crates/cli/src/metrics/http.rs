//! A server for one page: `GET /metrics`, HTTP/1.1, one request for each connection.
//!
//! This much needs no library: a request's first line is all that is read of it. What a client can do is bounded: how many are
//! served at once, how long a request and a response take, and how long a request is. Clients beyond that wait in the system's
//! queue.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// How many clients are served at once.
const WORKERS: usize = 8;
/// How long a client may take to send its request, and again to read the response.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest request, in bytes.
const LONGEST: usize = 8 << 10;
/// How long what a client sends after its request is read and discarded.
const LINGER: Duration = Duration::from_millis(500);

/// The only type of the text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// A response: its status, the type of the body, further header lines, and the body.
#[derive(Debug, PartialEq, Eq)]
struct Response {
    status: &'static str,
    kind: &'static str,
    headers: &'static str,
    body: String,
}

impl Response {
    fn error(status: &'static str, body: &str) -> Self {
        Self {
            status,
            kind: PLAIN,
            headers: "",
            body: format!("{body}\n"),
        }
    }
}

/// Serves `page` to all clients, and does not return.
pub(super) fn serve(listener: &TcpListener, page: &(dyn Fn() -> String + Sync)) {
    thread::scope(|scope| {
        for _ in 1..WORKERS {
            // With fewer threads, fewer clients are served at once.
            let _ = thread::Builder::new()
                .name("metrics".to_owned())
                .spawn_scoped(scope, || work(listener, page));
        }
        work(listener, page);
    });
}

fn work(listener: &TcpListener, page: &(dyn Fn() -> String + Sync)) {
    loop {
        match listener.accept() {
            // A client that fails has itself to blame.
            Ok((client, _)) => drop(serve_one(client, page)),
            // Out of descriptors, perhaps: others may be closed meanwhile.
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve_one(mut client: TcpStream, page: &dyn Fn() -> String) -> io::Result<()> {
    let request = read_request(&mut client, Instant::now() + PATIENCE)?;
    let (has_body, response) = respond(&request, page);
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Connection: close\r\n\r\n",
        response.status,
        response.kind,
        response.body.len(),
        response.headers
    )
    .into_bytes();
    if has_body {
        bytes.extend_from_slice(response.body.as_bytes());
    }
    write_all(&mut client, &bytes, Instant::now() + PATIENCE)?;
    // A connection that is closed with unread bytes is reset, and the response with it.
    client.shutdown(Shutdown::Write)?;
    let until = Instant::now() + LINGER;
    let mut rest = [0; 4096];
    while read_some(&mut client, &mut rest, until)? != 0 {}
    Ok(())
}

/// What a client has sent: up to the empty line, or as much as is taken of a longer request, or of one that does not end in time.
fn read_request(client: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !is_complete(&request) && request.len() <= LONGEST {
        match read_some(client, &mut part, until) {
            Ok(0) => break,
            Ok(count) => request.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => break,
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

fn is_complete(request: &[u8]) -> bool {
    let has = |end: &[u8]| request.windows(end.len()).any(|bytes| bytes == end);
    has(b"\r\n\r\n") || has(b"\n\n")
}

/// Reads once, until a moment.
fn read_some(client: &mut TcpStream, into: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            result => return result,
        }
    }
}

/// Writes until a moment, however slowly the client reads.
fn write_all(client: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_write_timeout(Some(left))?;
        match client.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The response to a request, and whether its body is sent.
fn respond(request: &[u8], page: &dyn Fn() -> String) -> (bool, Response) {
    if !is_complete(request) {
        let response = match request.len() > LONGEST {
            true => Response::error(
                "431 Request Header Fields Too Large",
                "the request is too long",
            ),
            false => Response::error("408 Request Timeout", "the request has no end"),
        };
        return (true, response);
    }
    let line = request
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = str::from_utf8(line).unwrap_or_default().trim_end();
    let words: Vec<&str> = line.split(' ').collect();
    let (method, path) = match words[..] {
        [method, path, version] if version.starts_with("HTTP/1.") => (method, path),
        _ => {
            return (
                true,
                Response::error("400 Bad Request", "not a request of HTTP/1"),
            );
        }
    };
    let has_body = method != "HEAD";
    let path = path.split('?').next().unwrap_or_default();
    let response = match (method, path) {
        (_, path) if path != "/metrics" => {
            Response::error("404 Not Found", "metrics are at /metrics")
        }
        ("GET" | "HEAD", _) => Response {
            status: "200 OK",
            kind: METRICS,
            headers: "",
            body: page(),
        },
        _ => Response {
            headers: "Allow: GET, HEAD\r\n",
            ..Response::error("405 Method Not Allowed", "accepted are GET and HEAD")
        },
    };
    (has_body, response)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, respond};

    #[test]
    fn only_get_of_the_page_is_served() {
        let page = || "page\n".to_owned();
        let status = |request: &[u8]| {
            let (has_body, response) = respond(request, &page);
            assert_eq!(response.body == "page\n", response.status == "200 OK");
            assert!(has_body || request.starts_with(b"HEAD "));
            response.status[..3].parse::<u16>().expect("a number")
        };
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status(b"GET /metrics?a=/b HTTP/1.0\n\n"), 200);
        assert_eq!(status(b"HEAD /metrics HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(
            status(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
            405
        );
        for path in ["/", "/metrics/", "metrics", "/Metrics", "//metrics"] {
            let request = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(status(request.as_bytes()), 404, "{path}");
        }
        assert_eq!(status(b"DELETE / HTTP/1.1\r\n\r\n"), 404);
        for other in [
            "GET /metrics",
            "GET  /metrics HTTP/1.1",
            "GET /metrics HTTP/2",
            "\u{1}\u{2}",
            "",
        ] {
            let request = format!("{other}\r\n\r\n");
            assert_eq!(status(request.as_bytes()), 400, "{other}");
        }
        assert_eq!(status(b"\xff\xfe /metrics HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n"), 408);
        assert_eq!(status(b""), 408);
        let long = [b"GET /metrics HTTP/1.1\r\nA: ".as_slice(), &[b'a'; LONGEST]].concat();
        assert_eq!(status(&long), 431);
    }
}
