//! Any bytes as an ELF file whose variables are looked up.

#![no_main]

cuguard_fuzz::target!(cuguard_torture::fuzz::elf_variables);
