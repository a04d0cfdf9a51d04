//! What the ELF file of a program says about preloading: its architecture, its loader, its sanitizers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// What cannot be audited, and what helps.
type Reason = (String, &'static str);

const OTHER_ARCHITECTURE: &str =
    "use a cuguard that is built for that architecture, if the CUDA driver has one";

/// Machines of `e_machine`.
const MACHINES: [(u16, &str); 8] = [
    (3, "x86"),
    (20, "PowerPC"),
    (21, "PowerPC, 64 bit"),
    (22, "S390"),
    (40, "ARM, 32 bit"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "RISC-V"),
];

/// The machine that this program, and so the library, is built for.
const OWN_MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    183
} else {
    62
};

fn u16_at(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_le_bytes(
        bytes.get(offset..offset + 2)?.try_into().ok()?,
    ))
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(
        bytes.get(offset..offset + 4)?.try_into().ok()?,
    ))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(offset..offset + 8)?.try_into().ok()?,
    ))
}

/// Checks the header of an ELF file, and its loader.
pub(super) fn check(start: &[u8], file: &mut File) -> Result<(), Reason> {
    let machine_name = |machine: u16| {
        let known = MACHINES.iter().find(|(number, _)| *number == machine);
        known.map_or_else(
            || format!("machine {machine}"),
            |(_, name)| (*name).to_owned(),
        )
    };
    match (start.get(4), start.get(5)) {
        (Some(2), Some(1)) => {}
        (Some(1), _) => return Err(("it is a program of 32 bit".to_owned(), OTHER_ARCHITECTURE)),
        _ => {
            return Err((
                "it is a program of another architecture (big-endian)".to_owned(),
                OTHER_ARCHITECTURE,
            ));
        }
    }
    let damaged = || ("its ELF header is damaged".to_owned(), "build it again");
    let machine = u16_at(start, 18).ok_or_else(damaged)?;
    if machine != OWN_MACHINE {
        let (is, own) = (machine_name(machine), machine_name(OWN_MACHINE));
        return Err((
            format!("it is a program for {is}, and this cuguard is for {own}"),
            OTHER_ARCHITECTURE,
        ));
    }
    let table = u64_at(start, 32).ok_or_else(damaged)?;
    let (size, count) = (
        u16_at(start, 54).ok_or_else(damaged)?,
        u16_at(start, 56).ok_or_else(damaged)?,
    );
    let mut headers = vec![0; usize::from(size) * usize::from(count)];
    file.seek(SeekFrom::Start(table)).map_err(|_| damaged())?;
    file.read_exact(&mut headers).map_err(|_| damaged())?;
    let loader = headers
        .chunks_exact(usize::from(size).max(1))
        .find(|header| u32_at(header, 0) == Some(3));
    let Some(header) = loader else {
        return Err((
            "it is linked statically and has no loader".to_owned(),
            "link it dynamically (without -static), or run the dynamic program that it starts",
        ));
    };
    let (offset, length) = (
        u64_at(header, 8).ok_or_else(damaged)?,
        u64_at(header, 32).ok_or_else(damaged)?,
    );
    let mut name = vec![0; usize::try_from(length.min(4096)).unwrap_or(0)];
    file.seek(SeekFrom::Start(offset)).map_err(|_| damaged())?;
    file.read_exact(&mut name).map_err(|_| damaged())?;
    let name = String::from_utf8_lossy(&name);
    let name = name.trim_end_matches('\0');
    if name.contains("ld-musl") {
        return Err((
            format!("its loader is {name}, of another C library than the audit library's"),
            "build it for glibc, as the CUDA driver requires",
        ));
    }
    let size = usize::from(size).max(1);
    match Dynamic::read(file, headers.chunks_exact(size)) {
        Some(dynamic) => check_sanitizers(&dynamic),
        None => Ok(()),
    }
}

/// The libraries that a program is linked against, and the names of its dynamic symbols.
struct Dynamic {
    needed: Vec<String>,
    /// Names, each with a null byte behind it.
    names: Vec<u8>,
}

/// A table that is larger is not one.
const MOST: u64 = 64 << 20;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;

fn read_at(file: &mut File, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).ok().filter(|_| length <= MOST)?];
    file.seek(SeekFrom::Start(offset)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

impl Dynamic {
    /// `None` for a program without a dynamic section, or a damaged one, which the loader will name.
    fn read<'a>(file: &mut File, headers: impl Iterator<Item = &'a [u8]> + Clone) -> Option<Self> {
        let of_type = |kind: u32| {
            let is = move |header: &&[u8]| u32_at(header, 0) == Some(kind);
            headers.clone().filter(is)
        };
        let dynamic = of_type(PT_DYNAMIC).next()?;
        let entries = read_at(file, u64_at(dynamic, 8)?, u64_at(dynamic, 32)?)?;
        let entries = entries.chunks_exact(16);
        let entries = entries.filter_map(|entry| Some((u64_at(entry, 0)?, u64_at(entry, 8)?)));
        let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != 0).collect();
        let value = |wanted: u64| {
            let mut entries = entries.iter();
            entries.find(|(tag, _)| *tag == wanted).map(|entry| entry.1)
        };
        let address = value(DT_STRTAB)?;
        // The section has addresses, and the file has the segment at another place.
        let offset = of_type(PT_LOAD).find_map(|header| {
            let (offset, start) = (u64_at(header, 8)?, u64_at(header, 16)?);
            let into = address.checked_sub(start)?;
            (into < u64_at(header, 32)?).then(|| offset + into)
        })?;
        let names = read_at(file, offset, value(DT_STRSZ)?)?;
        let name = |at: u64| {
            let rest = names.get(usize::try_from(at).ok()?..)?;
            let name = rest.split(|byte| *byte == 0).next()?;
            Some(String::from_utf8_lossy(name).into_owned())
        };
        let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
        let needed = needed.filter_map(|(_, at)| name(*at)).collect();
        Some(Self { needed, names })
    }

    /// The first library whose name begins with one of these.
    fn needs(&self, beginnings: &[&str]) -> Option<&str> {
        let is = |name: &&String| beginnings.iter().any(|start| name.starts_with(start));
        self.needed.iter().find(is).map(String::as_str)
    }

    fn names(&self, symbol: &[u8]) -> bool {
        let mut names = self.names.split(|byte| *byte == 0);
        names.any(|name| name == symbol)
    }
}

/// Sanitizers whose runtime does not work with a library in front of it.
fn check_sanitizers(dynamic: &Dynamic) -> Result<(), Reason> {
    if let Some(library) = dynamic.needs(&ADDRESS_SANITIZER) {
        return Err((
            format!(
                "it is built with AddressSanitizer, whose runtime ({library}) must be the first library"
            ),
            "build it without -fsanitize=address, or with -static-libasan",
        ));
    }
    if dynamic.names(b"__tsan_init") {
        return Err((
            "it is built with ThreadSanitizer, which replaces the same functions".to_owned(),
            "build it without -fsanitize=thread",
        ));
    }
    Ok(())
}

/// How the files of AddressSanitizer's runtime are named, by gcc and by clang.
const ADDRESS_SANITIZER: [&str; 2] = ["libasan.so", "libclang_rt.asan"];
