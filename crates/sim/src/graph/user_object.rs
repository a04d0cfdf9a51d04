//! User objects: data of the program that is destroyed when no graph references it any more.

use super::params::HostFunction;

#[derive(Debug)]
pub(crate) struct UserObject {
    /// Called when the last reference is released.
    pub(crate) destroy: HostFunction,
    pub(crate) references: u64,
}
