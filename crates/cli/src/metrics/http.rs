//! A server for one page: `GET /metrics`, HTTP/1.1, one request for each connection.
//!
//! This much needs no library: a request's first line is all that is read of it. What a client can do is bounded: how long a
//! request and a response take, and how long a request is. Each client has a thread; beyond so many, those that have not sent a
//! request are no longer waited for, the oldest first.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How many clients may be connected without having sent a request.
const SENDING: usize = 32;
/// How many clients are served at once, in all. Others wait in the system's queue.
const SERVED: usize = 64;
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

/// Those that are connected.
#[derive(Debug, Default)]
struct Clients {
    state: Mutex<State>,
    /// One has been served.
    left: Condvar,
}

#[derive(Debug, Default)]
struct State {
    served: usize,
    /// How many there were so far, which numbers them.
    count: u64,
    /// Those that have not sent a request, the oldest first.
    sending: VecDeque<(u64, TcpStream)>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
struct Client<'a> {
    clients: &'a Clients,
    number: u64,
    stream: TcpStream,
}

impl Clients {
    /// Waits until there is room for one more. Where many have sent nothing, the oldest of them has to make room.
    fn admit(&self, stream: TcpStream) -> io::Result<Client<'_>> {
        let another = stream.try_clone()?;
        let mut state = cuguard_sync::lock(&self.state);
        while state.served >= SERVED {
            let waited = self.left.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if state.sending.len() >= SENDING
            && let Some((_, oldest)) = state.sending.pop_front()
        {
            // Its thread reads the end of the request.
            let _ = oldest.shutdown(Shutdown::Read);
        }
        state.served += 1;
        state.count += 1;
        let number = state.count;
        state.sending.push_back((number, another));
        Ok(Client {
            clients: self,
            number,
            stream,
        })
    }
}

impl Client<'_> {
    /// What it has sent; from now on it is not one that makes room.
    fn request(&mut self) -> io::Result<Vec<u8>> {
        let request = read_request(&mut self.stream, Instant::now() + PATIENCE);
        self.is_sending_no_more(&mut cuguard_sync::lock(&self.clients.state));
        request
    }

    fn is_sending_no_more(&self, state: &mut State) {
        state.sending.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        let mut state = cuguard_sync::lock(&self.clients.state);
        self.is_sending_no_more(&mut state);
        state.served -= 1;
        self.clients.left.notify_one();
    }
}

/// Serves `page` to all clients, and does not return.
pub(super) fn serve(listener: &TcpListener, page: &(dyn Fn() -> String + Sync)) {
    let clients = Clients::default();
    thread::scope(|scope| {
        loop {
            let client = listener.accept();
            match client.and_then(|(stream, _)| clients.admit(stream)) {
                // A client that fails has itself to blame. Without a thread, the connection is closed.
                Ok(client) => drop(
                    thread::Builder::new()
                        .name("metrics".to_owned())
                        .spawn_scoped(scope, move || serve_one(client, page)),
                ),
                // Out of descriptors, perhaps: others may be closed meanwhile.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    });
}

fn serve_one(mut client: Client<'_>, page: &dyn Fn() -> String) -> io::Result<()> {
    let request = client.request()?;
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
    let client = &mut client.stream;
    write_all(client, &bytes, Instant::now() + PATIENCE)?;
    // A connection that is closed with unread bytes is reset, and the response with it.
    client.shutdown(Shutdown::Write)?;
    let until = Instant::now() + LINGER;
    let mut rest = [0; 4096];
    while read_some(client, &mut rest, until)? != 0 {}
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
    let request = without_empty_lines(request);
    let has = |end: &[u8]| request.windows(end.len()).any(|bytes| bytes == end);
    has(b"\r\n\r\n") || has(b"\n\n")
}

/// Old clients send an empty line before a request.
fn without_empty_lines(mut request: &[u8]) -> &[u8] {
    while let [b'\r' | b'\n', rest @ ..] = request {
        request = rest;
    }
    request
}

/// The path of a target: `/metrics` of `/metrics?a=b`, and of `http://host/metrics`, as proxies send it.
fn path_of(target: &str) -> &str {
    let target = match target.split_at_checked("http://".len()) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http://") => {
            rest.find('/').map_or("/", |at| &rest[at..])
        }
        _ => target,
    };
    target.split('?').next().unwrap_or_default()
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
    let line = without_empty_lines(request)
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = str::from_utf8(line).unwrap_or_default().trim_end();
    let words: Vec<&str> = line.split(' ').collect();
    let (method, path) = match words[..] {
        [method, target, version] if version.starts_with("HTTP/1.") => (method, path_of(target)),
        _ => {
            return (
                true,
                Response::error("400 Bad Request", "not a request of HTTP/1"),
            );
        }
    };
    let has_body = method != "HEAD";
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
    use std::io::{self, Read};
    use std::net::{TcpListener, TcpStream};

    use super::{Clients, LONGEST, SENDING, respond};

    /// Without time limits, so a client that is waited for would be waited for here.
    #[test]
    fn the_oldest_client_that_has_sent_nothing_makes_room() -> io::Result<()> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (clients, mut connected) = (Clients::default(), Vec::new());
        let mut connect = || {
            connected.push(TcpStream::connect(listener.local_addr()?)?);
            clients.admit(listener.accept()?.0)
        };
        let mut admitted = (0..SENDING)
            .map(|_| connect())
            .collect::<io::Result<Vec<_>>>()?;
        // This one has sent its request.
        let sent = admitted.remove(0);
        sent.is_sending_no_more(&mut cuguard_sync::lock(&clients.state));
        admitted.push(connect()?);
        let is_open = |client: &mut TcpStream| {
            client.set_nonblocking(true)?;
            let read = client.read(&mut [0]).map_err(|error| error.kind());
            client.set_nonblocking(false)?;
            io::Result::Ok(read == Err(io::ErrorKind::WouldBlock))
        };
        assert!(is_open(&mut admitted[0].stream)?);
        admitted.push(connect()?);
        assert_eq!(admitted[0].stream.read(&mut [0])?, 0);
        assert!(is_open(&mut admitted[1].stream)?);
        drop((admitted, sent));
        let state = cuguard_sync::lock(&clients.state);
        assert_eq!((state.served, state.sending.len()), (0, 0));
        Ok(())
    }

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
            status(b"GET http://host:9400/metrics HTTP/1.1\r\n\r\n"),
            200
        );
        assert_eq!(status(b"GET HTTP://[::1]/metrics?a HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(status(b"\r\n\r\n\nGET /metrics HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(
            status(b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
            405
        );
        for path in [
            "/",
            "/metrics/",
            "metrics",
            "/Metrics",
            "//metrics",
            "http://metrics",
            "http://metrics/",
            "ftp://host/metrics",
        ] {
            let request = format!("GET {path} HTTP/1.1\r\n\r\n");
            assert_eq!(status(request.as_bytes()), 404, "{path}");
        }
        assert_eq!(status(b"DELETE / HTTP/1.1\r\n\r\n"), 404);
        for other in [
            "GET /metrics",
            "GET  /metrics HTTP/1.1",
            "GET /metrics HTTP/2",
            "\u{1}\u{2}",
            " ",
        ] {
            let request = format!("{other}\r\n\r\n");
            assert_eq!(status(request.as_bytes()), 400, "{other}");
        }
        assert_eq!(status(b"\xff\xfe /metrics HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n"), 408);
        assert_eq!(status(b""), 408);
        assert_eq!(status(b"\r\n\r\n"), 408);
        let long = [b"GET /metrics HTTP/1.1\r\nA: ".as_slice(), &[b'a'; LONGEST]].concat();
        assert_eq!(status(&long), 431);
    }
}
