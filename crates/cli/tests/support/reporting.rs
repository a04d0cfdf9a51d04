//! `cuguard report` on recordings that child processes make. A test program that uses this has a test `record_child`.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

/// A run of 96 MiB at the peak, 32 MiB of them never freed, and an out-of-memory error behind the peak.
pub const TRAINING: &str = "a1,33554432,1,2 a2,33554432,2,3 a3,33554432,2,3 f2 o1073741824 f3";

/// A folder that is removed at the end of a test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("cuguard-report-{name}-{}", std::process::id()));
        // One may be left of a process that was killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the folder can be created");
        Self(folder)
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub fn record(&self, name: &str, rank: Option<u32>, script: &str) -> String {
        let path = self.path(name);
        super::recorded::make("record_child", Path::new(&path), rank, script);
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn cuguard(arguments: &[&str]) -> Output {
    let output = crate::support::cuguard("sim", arguments).output();
    output.expect("the command can be started")
}

/// Standard output of a command that succeeds and complains about nothing.
pub fn shown(arguments: &[&str]) -> String {
    let output = cuguard(arguments);
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("the output is text")
}

/// The exit code and standard error of a command that fails.
pub fn refused(arguments: &[&str]) -> (i32, String) {
    let output = cuguard(arguments);
    let code = output.status.code().expect("no signal ends it");
    assert_ne!(code, 0, "{output:?}");
    (code, String::from_utf8_lossy(&output.stderr).into_owned())
}
