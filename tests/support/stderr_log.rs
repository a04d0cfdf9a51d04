//! A logger that writes to stderr, for child processes whose log is checked.

struct ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &log::Record<'_>) {
        eprintln!("logged: {}", record.args());
    }
    fn flush(&self) {}
}

/// Errors are logged to stderr from here on, as `logged: …`.
pub fn log_errors() {
    log::set_logger(&ToStderr).expect("no other logger is set");
    log::set_max_level(log::LevelFilter::Error);
}
