//! The corpus.
