//! Frames of interpreters: addresses in stacks that stand for them.

use std::sync::OnceLock;

/// Function, file and line of a frame that an address stands for; `None` for addresses of code.
pub type ResolveForeign = fn(usize) -> Option<(String, String, u32)>;

static RESOLVE: OnceLock<ResolveForeign> = OnceLock::new();

/// Sets how the frames of interpreters in stacks are found. The first call counts.
///
/// ```
/// cuguard_recording::register_foreign(|address| {
///     (address == 7).then(|| ("main".to_owned(), "app.py".to_owned(), 3))
/// });
/// ```
pub fn register_foreign(resolve: ResolveForeign) {
    let _ = RESOLVE.set(resolve);
}

pub(crate) fn resolve(address: usize) -> Option<(String, String, u32)> {
    RESOLVE.get()?(address)
}
