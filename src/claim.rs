//! A claim: the one owner of one resource. Every guard holds one, and lets it do what must never
//! go wrong: enter the resource in the registry, take it out and free it, whatever thread it is
//! dropped on, and keep the driver's word when it refuses.

use std::fmt;
use std::sync::Arc;

use cuguard_driver::sys::{CUresult, CUstream};

use crate::custody::Custody;
use crate::error::{Error, Result};
use crate::raw;
use crate::registry::{Entry, FailedFree, Key};
use crate::stream::StreamCore;

pub(crate) struct Claim {
    custody: Arc<Custody>,
    key: Key,
    bytes: u64,
    /// The stream that stream-ordered memory is freed on. It lives as long as the memory.
    home: Option<Arc<StreamCore>>,
    /// Nothing is owned any more: freed, or given away.
    done: bool,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {:#x} of {:?}",
            self.key.kind, self.key.address, self.custody
        )
    }
}

impl Claim {
    /// Takes a resource that the driver just gave out. (Law 2: into the registry after the driver
    /// allocated.)
    #[track_caller]
    pub(crate) fn new(
        custody: &Arc<Custody>,
        key: Key,
        entry: Entry,
        home: Option<Arc<StreamCore>>,
    ) -> Self {
        let bytes = entry.bytes;
        custody.registry.insert(key, entry);
        Self {
            custody: custody.clone(),
            key,
            bytes,
            home,
            done: false,
        }
    }

    /// Takes back what [`give_away`](Self::give_away) gave, or adopts what somebody else made.
    #[track_caller]
    pub(crate) fn take_back(
        custody: &Arc<Custody>,
        key: Key,
        entry: Entry,
        home: Option<Arc<StreamCore>>,
    ) -> Self {
        if !custody.registry.recapture(key) {
            return Self::new(custody, key, entry, home);
        }
        Self {
            custody: custody.clone(),
            key,
            bytes: entry.bytes,
            home,
            done: false,
        }
    }

    /// Gives the resource away. It stays in the registry, marked as escaped.
    pub(crate) fn give_away(mut self) -> u64 {
        self.custody.registry.escape(self.key, self.bytes);
        self.done = true;
        self.key.address
    }

    pub(crate) fn custody(&self) -> &Arc<Custody> {
        &self.custody
    }

    pub(crate) fn address(&self) -> u64 {
        self.key.address
    }

    pub(crate) fn home(&self) -> Option<&Arc<StreamCore>> {
        self.home.as_ref()
    }

    pub(crate) fn name(&self, label: &str) {
        self.custody.registry.label(self.key, label);
    }

    /// Frees the resource and tells whether the driver took it.
    pub(crate) fn close(mut self, operation: &'static str) -> Result<()> {
        self.release(operation)
    }

    /// Law 2: out of the registry before the driver frees, as the driver hands the address out
    /// again at once. Law 3: what it refuses is kept.
    #[track_caller]
    fn release(&mut self, operation: &'static str) -> Result<()> {
        if std::mem::replace(&mut self.done, true) {
            return Ok(());
        }
        let registry = &self.custody.registry;
        let entered = match self.custody.enter(operation) {
            Ok(entered) => entered,
            Err(error @ Error::ContextClosed { .. }) => {
                // Teardown has freed it.
                registry.count_late_drop(self.key.kind, self.bytes);
                return Err(error);
            }
            Err(error) => {
                let code = error.code().unwrap_or(CUresult::UNKNOWN);
                self.file("cuCtxPushCurrent", code);
                return Err(error);
            }
        };
        let record = registry.remove(self.key, self.bytes);
        let stream = self
            .home
            .as_ref()
            .map_or(CUstream::NULL, |home| home.handle());
        // SAFETY: this claim is the one owner and frees once. Its context is current. What guards
        // let happen to the resource on other streams is ordered before its home stream.
        let (function, code) = unsafe { raw::free(self.key, stream) };
        if !code.is_success() {
            registry.file_failed_free(FailedFree::new(
                self.key,
                self.bytes,
                record,
                function,
                code.0,
                code.to_string(),
            ));
        }
        entered.check_bytes(function, code, self.bytes as usize)
    }

    /// A free that could not even be tried.
    #[track_caller]
    fn file(&self, function: &'static str, code: CUresult) {
        let registry = &self.custody.registry;
        let record = registry.remove(self.key, self.bytes);
        registry.file_failed_free(FailedFree::new(
            self.key,
            self.bytes,
            record,
            function,
            code.0,
            code.to_string(),
        ));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // What went wrong has been filed.
        let _ = self.release("drop");
    }
}
