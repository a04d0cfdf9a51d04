//! The connections of the server: several at once, served by one thread, which waits for none of them.
//!
//! ```text
//!     Asking ── a whole line ──► Asked ── room for a reply ──► Replying ── all sent ──► closed
//! ```
//!
//! Each state has a time limit. Where all places are taken and another client waits, the one that has stood still for the longest
//! time is closed, so that clients that send or read nothing keep nobody from a reply. A client whose reply was not sent to its
//! end sees a reset connection, and not a short report: a byte of its request is left unread until then.

use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::Source;
use crate::credentials::credentials;
use crate::descriptor::Descriptor;
use crate::protocol::{LONGEST, Request, parse_request};
use crate::reply;
use crate::running::{CLIENTS, MOST_CLIENTS as MOST};

/// Descriptors that are left to the program: where there are fewer, clients wait.
const RESERVED: usize = 16;
/// The most bytes of replies that wait to be read, of all clients: no further report is made then.
const MOST_PENDING: usize = 16 << 20;

/// How long a client may take to send its request.
const REQUEST: Duration = Duration::from_secs(2);
/// How long a client may take to read its reply, and how long it waits for one while others do not read theirs.
const REPLY: Duration = Duration::from_secs(30);
/// How long a client may stand still while another one waits.
const STALLED: Duration = Duration::from_millis(250);
/// How long no connection is accepted after the process had no descriptor for one.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug)]
enum State {
    Asking,
    Asked(Request),
    Replying { reply: Vec<u8>, sent: usize },
}

/// A connection.
#[derive(Debug)]
struct Client {
    /// The program may have closed it and have another file with its number.
    descriptor: &'static Descriptor,
    state: State,
    line: [u8; LONGEST],
    length: usize,
    /// When it is closed.
    until: Instant,
    /// When it last sent or read something.
    progress: Instant,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.descriptor.close();
    }
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Stays,
    Ends,
}

impl Client {
    /// `None` if there are as many as there may be.
    fn new(descriptor: OwnedFd) -> Option<Self> {
        let now = Instant::now();
        let own = CLIENTS.iter().find(|one| one.is_none())?;
        own.set(descriptor.into_raw_fd());
        Some(Self {
            descriptor: own,
            state: State::Asking,
            line: [0; LONGEST],
            length: 0,
            until: now + REQUEST,
            progress: now,
        })
    }

    fn pending(&self) -> usize {
        match &self.state {
            State::Replying { reply, sent } => reply.len() - sent,
            _ => 0,
        }
    }

    fn polled(&self) -> Option<RawFd> {
        match self.state {
            State::Asked(_) => None,
            _ => self.descriptor.get(),
        }
    }

    /// What it waits for.
    fn events(&self) -> libc::c_short {
        match self.state {
            State::Asking => libc::POLLIN,
            State::Asked(_) => 0,
            State::Replying { .. } => libc::POLLOUT,
        }
    }

    fn begin_reply(&mut self, reply: Vec<u8>) {
        let now = Instant::now();
        (self.until, self.progress) = (now + REPLY, now);
        self.state = State::Replying { reply, sent: 0 };
    }

    fn refuse(&mut self, why: &str) -> Next {
        self.begin_reply(reply::error(why));
        self.send()
    }

    /// Reads what has arrived of the request, all but the line break.
    fn receive(&mut self) -> Next {
        let Some(descriptor) = self.descriptor.get() else {
            return Next::Ends;
        };
        let room = &mut self.line[self.length..];
        let seen = match receive(descriptor, room, libc::MSG_PEEK) {
            Ok(0) => return Next::Ends,
            Ok(seen) => seen,
            Err(error) => return after(&error),
        };
        let is_whole = room[..seen].contains(&b'\n');
        // Peeked, so it is there.
        let _ = receive(descriptor, &mut room[..seen - usize::from(is_whole)], 0);
        self.length += seen;
        self.progress = Instant::now();
        if !is_whole && self.length < LONGEST {
            return Next::Stays;
        }
        match parse_request(&self.line[..self.length]) {
            Some(request) => {
                self.state = State::Asked(request);
                self.until = self.progress + REPLY;
                Next::Stays
            }
            None => self.refuse("unknown request; accepted: dump, stats, report, peak, trim"),
        }
    }

    /// Makes the reply, if it has asked.
    fn reply(&mut self, source: &dyn Source) -> Next {
        let State::Asked(request) = self.state else {
            return Next::Stays;
        };
        // It no longer waits: memory that is released now would only have to be mapped again.
        if matches!(request, Request::Trim { .. }) && self.has_hung_up() {
            return Next::Ends;
        }
        self.begin_reply(reply::to(request, source));
        self.send()
    }

    /// Sends as much of the reply as the client has room for.
    fn send(&mut self) -> Next {
        let Some(descriptor) = self.descriptor.get() else {
            return Next::Ends;
        };
        let State::Replying { reply, sent } = &mut self.state else {
            return Next::Stays;
        };
        while *sent < reply.len() {
            let (bytes, flags) = (&reply[*sent..], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
            // SAFETY: the bytes can be read; a file that is not a socket is left alone.
            let count =
                unsafe { libc::send(descriptor, bytes.as_ptr().cast(), bytes.len(), flags) };
            match usize::try_from(count) {
                Ok(count) => *sent += count,
                Err(_) => return after(&io::Error::last_os_error()),
            }
            self.progress = Instant::now();
        }
        // All is sent: without unread bytes the client sees the end, and no reset.
        let _ = receive(descriptor, &mut [0; LONGEST], 0);
        // A child that the program forked meanwhile has the connection, too.
        // SAFETY: a socket of this library, or a file that is not a socket.
        unsafe { libc::shutdown(descriptor, libc::SHUT_WR) };
        Next::Ends
    }

    /// Whether the client has closed the connection.
    fn has_hung_up(&self) -> bool {
        let Some(fd) = self.descriptor.get() else {
            return true;
        };
        let mut one = libc::pollfd {
            fd,
            events: 0,
            revents: 0,
        };
        // SAFETY: one descriptor; does not wait.
        let ready = unsafe { libc::poll(&mut one, 1, 0) };
        ready == 1 && one.revents & libc::POLLHUP != 0
    }

    /// Goes on, after `poll` returned these events.
    fn go_on(&mut self, events: libc::c_short) -> Next {
        match self.state {
            State::Asking if events & libc::POLLIN != 0 => self.receive(),
            State::Replying { .. } if events & libc::POLLOUT != 0 => self.send(),
            // A request is processed although its client has disconnected: it may write a report to a file.
            State::Asked(_) => Next::Stays,
            _ if events & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0 => Next::Ends,
            _ => Next::Stays,
        }
    }
}

fn receive(descriptor: RawFd, bytes: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    // SAFETY: the bytes can be written to; a file that is not a socket is left alone.
    let count = unsafe { libc::recv(descriptor, bytes.as_mut_ptr().cast(), bytes.len(), flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn after(error: &io::Error) -> Next {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Next::Stays,
        _ => Next::Ends,
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    list: Vec<Client>,
    /// No connection is accepted before.
    pause: Option<Instant>,
}

impl Clients {
    /// Adds what the connections wait for.
    pub(crate) fn add_to(&self, polled: &mut Vec<libc::pollfd>) {
        polled.extend(self.list.iter().map(|client| libc::pollfd {
            // A negative number is skipped. A client that has asked waits for nothing: if it has hung up, `poll` would return at once.
            fd: client.polled().unwrap_or(-1),
            events: client.events(),
            revents: 0,
        }));
    }

    /// When a client could be closed for another one that waits: `None` if there is room.
    fn room_from(&self) -> Option<Instant> {
        let stalled = self.list.iter().map(|client| client.progress + STALLED);
        stalled.min().filter(|_| self.list.len() >= MOST)
    }

    /// Whether a connection can be accepted now.
    pub(crate) fn accepts(&self, now: Instant) -> bool {
        let is_over = |time: Option<Instant>| time.is_none_or(|time| time <= now);
        is_over(self.pause) && is_over(self.room_from())
    }

    /// How long to wait at most.
    pub(crate) fn patience(&self, now: Instant, most: Duration) -> Duration {
        let limits = self.list.iter().map(|client| client.until);
        let waits = self.has_asking();
        let reading = self.list.iter().filter(|one| waits && one.pending() != 0);
        let times = limits
            .chain(reading.map(|client| client.progress + STALLED))
            .chain(self.pause.filter(|time| *time > now))
            .chain(self.room_from().filter(|time| *time > now));
        let next = times.min().map(|time| time.saturating_duration_since(now));
        // Rounded up: `poll` counts milliseconds.
        most.min(next.unwrap_or(most)) + Duration::from_millis(1)
    }

    /// Accepts a connection, if the program keeps descriptors enough.
    pub(crate) fn accept(&mut self, listener: RawFd) {
        self.pause = None;
        if !are_descriptors_left() {
            self.pause = Some(Instant::now() + PAUSE);
            return;
        }
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let none = std::ptr::null_mut();
        // SAFETY: the address is not wanted.
        let accepted = unsafe { libc::accept4(listener, none, none.cast(), flags) };
        if accepted < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock {
                // The process has no descriptor left. The connection waits.
                self.pause = Some(Instant::now() + PAUSE);
            }
            return;
        }
        if self.list.len() >= MOST {
            self.close_most_stalled();
        }
        // SAFETY: a new descriptor that nothing else owns.
        let Some(mut client) = Client::new(unsafe { OwnedFd::from_raw_fd(accepted) }) else {
            return;
        };
        // SAFETY: always succeeds.
        let own = unsafe { libc::geteuid() };
        let next = match credentials(accepted) {
            Err(_) => Next::Ends,
            Ok(peer) if peer.uid != own && peer.uid != 0 => {
                client.refuse("this process belongs to another user")
            }
            Ok(_) => Next::Stays,
        };
        if next == Next::Stays {
            self.list.push(client);
        }
    }

    fn close_most_stalled(&mut self) {
        let clients = self.list.iter().enumerate();
        if let Some((at, _)) = clients.min_by_key(|(_, client)| client.progress) {
            drop(self.list.swap_remove(at));
        }
    }

    /// Goes on with all connections: `polled` has what [`add_to`](Self::add_to) added.
    pub(crate) fn go_on(&mut self, polled: &[libc::pollfd], source: &dyn Source) {
        let now = Instant::now();
        let mut events = polled.iter().map(|one| one.revents);
        // A whole request begins another limit: a client is not closed because this thread was busy with the report of another.
        self.list.retain_mut(|client| {
            client.go_on(events.next().unwrap_or(0)) == Next::Stays && client.until > now
        });
        if self.has_asking() && self.pending() >= MOST_PENDING {
            // For clients that do not read their reply, others would wait.
            self.list
                .retain(|client| client.pending() == 0 || client.progress + STALLED > now);
        }
        for at in (0..self.list.len()).rev() {
            if self.pending() < MOST_PENDING && self.list[at].reply(source) == Next::Ends {
                drop(self.list.swap_remove(at));
            }
        }
    }

    /// Whether a client waits for its reply to be made.
    fn has_asking(&self) -> bool {
        let mut states = self.list.iter().map(|client| &client.state);
        states.any(|state| matches!(state, State::Asked(_)))
    }

    fn pending(&self) -> usize {
        self.list.iter().map(Client::pending).sum()
    }
}

/// Whether the program has more descriptors left than are reserved for it. Uses none itself, and no file's own functions.
fn are_descriptors_left() -> bool {
    // SAFETY: plain data, for which zero is valid.
    let mut limit: libc::rlimit = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the variable.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    let limit = if code == 0 { limit.rlim_cur } else { 0 };
    let numbers = 0..RawFd::try_from(limit).unwrap_or(RawFd::MAX);
    // SAFETY: any number can be asked for.
    let is_free = |number: &RawFd| unsafe { libc::fcntl(*number, libc::F_GETFD) } < 0;
    numbers.filter(is_free).nth(RESERVED).is_some()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::{Client, Clients, State};
    use crate::running::in_child;
    use crate::{Format, Source};

    struct Figures;

    impl Source for Figures {
        fn dump(&self, _: Format, _: bool) -> String {
            String::new()
        }
        fn stats(&self, sites: usize) -> String {
            format!("{sites} sites\n")
        }
        fn write_report(&self) {}
    }

    fn connected(clients: &mut Clients) -> UnixStream {
        let (near, far) = UnixStream::pair().unwrap();
        clients
            .list
            .push(Client::new(OwnedFd::from(near)).expect("there are few"));
        far
    }

    fn go_on(clients: &mut Clients, events: libc::c_short) {
        let mut polled = Vec::new();
        clients.add_to(&mut polled);
        polled.iter_mut().for_each(|one| one.revents = events);
        clients.go_on(&polled, &Figures);
    }

    /// One test: the descriptors are those of the process.
    #[test]
    fn limits_and_ends_of_clients() {
        let mut clients = Clients::default();

        // The report of another took longer than a client may take to ask, and its request has arrived meanwhile.
        let mut far = connected(&mut clients);
        far.write_all(b"stats 7\n").unwrap();
        clients.list[0].until = Instant::now();
        go_on(&mut clients, libc::POLLIN);
        let mut reply = String::new();
        far.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "ok\n7 sites\n");
        assert!(clients.list.is_empty());
        // One that has sent nothing is closed.
        let mut far = connected(&mut clients);
        clients.list[0].until = Instant::now();
        go_on(&mut clients, 0);
        assert!(clients.list.is_empty());
        assert_eq!(far.read(&mut [0]).unwrap(), 0);

        // One that waits for the replies of others, and has hung up: `poll` would return at once.
        drop(connected(&mut clients));
        clients.list[0].state = State::Asked(crate::Request::Report);
        let mut polled = Vec::new();
        clients.add_to(&mut polled);
        assert_eq!(polled[0].fd, -1);
        clients.list.clear();

        // A forked child closes its copies.
        let mut far = connected(&mut clients);
        in_child();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
