//! What a program did.

/// Counts of a program's steps and their effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Steps.
    pub steps: u64,
    /// Resources that were created: memory and handles.
    pub allocations: u64,
    /// The bytes of those.
    pub bytes: u64,
    /// Resources that were forgotten.
    pub forgotten: u64,
    /// Memory that was released with `into_raw`.
    pub escaped: u64,
    /// Scopes that ran.
    pub scopes: u64,
    /// Of those, the ones that were captured as graphs.
    pub graphs: u64,
    /// Of the scopes, those within which the context of their host memory was closed.
    pub host_closes: u64,
    /// Panics that were caught.
    pub panics: u64,
    /// Checks by a kernel.
    pub kernels: u64,
    /// Contexts that were created.
    pub contexts: u64,
}
