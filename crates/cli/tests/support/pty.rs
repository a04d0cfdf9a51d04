//! Programs in a pseudo-terminal.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// A program in a pseudo-terminal, whose foreground process it is: Ctrl-C interrupts it.
pub struct Pty {
    terminal: File,
    child: Child,
    seen: Vec<u8>,
}

fn window(columns: u16, rows: u16) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Pty {
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Self {
        // One at a time: another child would inherit the open descriptors, and keep the terminal open.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut master, mut slave) = (0, 0);
        let mut size = window(columns, rows);
        // SAFETY: the variables can be written to; name and settings may be null.
        let code = unsafe {
            libc::openpty(
                &raw mut master,
                &raw mut slave,
                ptr::null_mut(),
                ptr::null_mut(),
                &raw mut size,
            )
        };
        assert_eq!(code, 0, "there are pseudo-terminals");
        // SAFETY: both were opened above and have no other owner.
        let (terminal, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let copy = || slave.try_clone().expect("it can be copied");
        command.stdin(copy()).stdout(copy()).stderr(copy());
        // SAFETY: these calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                // A shell ignores SIGINT in background processes.
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("the program starts");
        // The command holds copies of the descriptors, which keep the terminal open.
        *command = Command::new("");
        Self {
            terminal,
            child,
            seen: Vec::new(),
        }
    }

    /// Reads until what it wrote so far satisfies this, or the program has ended.
    pub fn read_until(&mut self, mut is_enough: impl FnMut(&str) -> bool) {
        let mut part = [0; 4096];
        while !is_enough(&self.text()) {
            match self.terminal.read(&mut part) {
                // The program has closed its side.
                Err(_) | Ok(0) => return,
                Ok(length) => self.seen.extend(&part[..length]),
            }
        }
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        let written = self.terminal.write_all(keys.as_bytes());
        written.expect("keys can be pressed");
    }

    /// The settings of the terminal: echo, lines, signals.
    pub fn settings(&self) -> [libc::tcflag_t; 4] {
        // SAFETY: the settings are plain data, for which zero is valid, and can be written to.
        let settings = unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.terminal.as_raw_fd(), &mut settings), 0);
            settings
        };
        [
            settings.c_iflag,
            settings.c_oflag,
            settings.c_cflag,
            settings.c_lflag,
        ]
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let size = window(columns, rows);
        // SAFETY: the descriptor is open, and the call reads the struct.
        let code =
            unsafe { libc::ioctl(self.terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(code, 0);
    }

    /// Reads the rest, and waits.
    pub fn end(&mut self) -> ExitStatus {
        self.read_until(|_| false);
        self.child.wait().expect("it can be waited for")
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
