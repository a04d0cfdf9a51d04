//! Every end of a process: its own exit status, and one report.
//!
//! `ends.c` ends as it is asked to. It needs a C compiler; without one, the tests print that they were not run.

mod content;
mod output;
mod processes;
mod program;
mod python;
mod status;
