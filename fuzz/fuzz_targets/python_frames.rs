//! Any bytes as memory of a Python interpreter.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::python_frames);
