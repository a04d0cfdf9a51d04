//! What registers and memory of random programs begin with: values at which instructions behave differently.

/// Bytes per thread.
pub(super) const RECORD: usize = 384;
/// In a record: the predicates.
pub(super) const PREDICATES: usize = 144;
/// In a record: memory of the thread.
pub(super) const SLOT: usize = 192;
/// In a record: the copy of its shared memory at the end.
pub(super) const SHARED_SLOT: usize = 256;
/// In a record: the copy of its local memory at the end.
pub(super) const LOCAL_SLOT: usize = 320;
/// Bytes after the records, which all threads add to.
pub(super) const CELLS: usize = 64;

/// Registers of a kind, and where a record has them.
#[derive(Debug)]
pub(super) struct Registers {
    letter: char,
    count: usize,
    bits: usize,
    offset: usize,
}

/// A place in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    pub(super) bits: usize,
    pub(super) offset: usize,
}

pub(super) const REGISTERS: &[Registers] = &[
    Registers {
        letter: 'r',
        count: 8,
        bits: 32,
        offset: 0,
    },
    Registers {
        letter: 'f',
        count: 6,
        bits: 32,
        offset: 32,
    },
    Registers {
        letter: 'x',
        count: 2,
        bits: 32,
        offset: 56,
    },
    Registers {
        letter: 'd',
        count: 4,
        bits: 64,
        offset: 64,
    },
    Registers {
        letter: 'g',
        count: 4,
        bits: 64,
        offset: 96,
    },
    Registers {
        letter: 'h',
        count: 4,
        bits: 16,
        offset: 128,
    },
    Registers {
        letter: 'e',
        count: 4,
        bits: 16,
        offset: 136,
    },
];

impl Registers {
    pub(super) fn places(&self) -> impl Iterator<Item = (String, At)> {
        (0..self.count).map(|index| {
            let offset = self.offset + index * self.bits / 8;
            (
                format!("%{}{index}", self.letter),
                At {
                    bits: self.bits,
                    offset,
                },
            )
        })
    }
}

/// A generator of numbers (SplitMix64).
#[derive(Debug)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut own = self.0;
        own = (own ^ (own >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        own = (own ^ (own >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        own ^ (own >> 31)
    }
}

const INTEGERS: [u64; 12] = [
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x8000,
    0xff,
];
const SINGLES: [u32; 16] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0x0000_0001,
    0x807f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0x3f00_0000,
    0x4020_0000,
    0x4f00_0000,
    0x5f00_0000,
    0x3eaa_aaab,
];
const DOUBLES: [u64; 12] = [
    0,
    1 << 63,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0x7ff8_0000_0000_0001,
    1,
    0x0010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0x4004_0000_0000_0000,
    0x41e0_0000_0000_0000,
    0x3810_0000_0000_0000,
];
const HALVES: [u16; 14] = [
    0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e01, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x3800,
    0x3f80, 0xff80,
];

fn single(pick: usize, number: u64) -> u32 {
    match pick % 4 {
        0 => SINGLES[pick / 4 % SINGLES.len()],
        // Any bits.
        1 => number as u32,
        // Near 1.
        2 => (number as u32 & 0x80ff_ffff) | 0x3f00_0000,
        // Small whole numbers and halves of these.
        _ => (((number as i32) >> 22) as f32 / 2.0).to_bits(),
    }
}

fn double(pick: usize, number: u64) -> u64 {
    match pick % 4 {
        0 => DOUBLES[pick / 4 % DOUBLES.len()],
        1 => number,
        // In the range of f32.
        2 => (number & 0x80ff_ffff_ffff_ffff) | 0x3f80_0000_0000_0000,
        _ => ((number as i64 >> 40) as f64 / 4.0).to_bits(),
    }
}

fn half(pick: usize, number: u64) -> u16 {
    match pick % 4 {
        0 => HALVES[pick / 4 % HALVES.len()],
        1 => number as u16,
        _ => (number as u16 & 0x8fff) | 0x3000,
    }
}

fn integer(pick: usize, number: u64) -> u64 {
    match pick % 4 {
        0 => INTEGERS[pick / 4 % INTEGERS.len()],
        1 => number,
        2 => (number as i32 >> 24) as u64,
        _ => 1 << (number % 64),
    }
}

/// An immediate of a kind of operand.
pub(super) fn immediate(kind: char, pick: usize, number: u64) -> String {
    match kind {
        'i' => format!("{:#x}", integer(pick, number) as u32),
        'j' => format!("{:#x}", integer(pick, number)),
        'k' => format!("0f{:08x}", single(pick, number)),
        _ => format!("0d{:016x}", double(pick, number)),
    }
}

/// The bytes that a program begins with: the records of its threads, and the cells.
pub(super) fn bytes(seed: u64, threads: usize) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    let mut out = vec![0; threads * RECORD + CELLS];
    for record in out[..threads * RECORD].chunks_mut(RECORD) {
        for registers in REGISTERS {
            for (_, at) in registers.places() {
                let (pick, number) = (numbers.next() as usize >> 8, numbers.next());
                let value = match registers.letter {
                    'r' | 'd' | 'h' => integer(pick, number),
                    'f' => single(pick, number).into(),
                    'g' => double(pick, number),
                    'x' => {
                        u64::from(half(pick, number)) << 16
                            | u64::from(half(pick >> 16, number >> 16))
                    }
                    _ => half(pick, number).into(),
                };
                record[at.offset..at.offset + at.bits / 8]
                    .copy_from_slice(&value.to_le_bytes()[..at.bits / 8]);
            }
        }
        for word in record[PREDICATES..SHARED_SLOT].chunks_mut(8) {
            word.copy_from_slice(&numbers.next().to_le_bytes());
        }
    }
    out
}
