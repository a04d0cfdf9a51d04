//! The page in a real browser. Without one, each test prints that it was not run.

mod drawn;
mod interaction;
mod limits;
mod naming;
mod numbers;
mod speedscope;
mod support;
mod surroundings;
