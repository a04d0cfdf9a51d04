//! What buffers begin with.

/// The contents of a buffer: a kind, a type, a number of elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    kind: Kind,
    of: Type,
    pub(super) count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Zero,
    /// 0, 1, 2, …
    Iota,
    /// Any bits.
    Noise,
    /// Whole numbers from 0 to 99.
    Small,
    /// Sixteenths from -4 to 4: sums and products of a few are exact in most types.
    Unit,
    /// From 1 to 2, all digits.
    Real,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Type {
    pub(super) fn size(self) -> usize {
        match self {
            Type::U8 => 1,
            Type::U16 | Type::F16 | Type::Bf16 => 2,
            Type::U32 | Type::F32 => 4,
            Type::U64 | Type::F64 => 8,
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "u8" | "i8" => Type::U8,
            "u16" | "i16" => Type::U16,
            "u32" | "i32" => Type::U32,
            "u64" | "i64" => Type::U64,
            "f16" => Type::F16,
            "bf16" => Type::Bf16,
            "f32" => Type::F32,
            "f64" => Type::F64,
            _ => return None,
        })
    }

    /// The bytes of a number that the type has exactly.
    fn bytes(self, value: f64) -> Vec<u8> {
        let single = (value as f32).to_bits();
        match self {
            Type::U8 => vec![value as i64 as u8],
            Type::U16 => (value as i64 as u16).to_le_bytes().to_vec(),
            Type::U32 => (value as i64 as u32).to_le_bytes().to_vec(),
            Type::U64 => (value as i64).to_le_bytes().to_vec(),
            Type::F16 => half(single).to_le_bytes().to_vec(),
            Type::Bf16 => ((single >> 16) as u16).to_le_bytes().to_vec(),
            Type::F32 => single.to_le_bytes().to_vec(),
            Type::F64 => value.to_le_bytes().to_vec(),
        }
    }
}

/// A half of normal size, cut off.
fn half(single: u32) -> u16 {
    if single << 1 == 0 {
        return (single >> 16) as u16;
    }
    let exponent = (single >> 23 & 0xff) as i32 - 127 + 15;
    (single >> 16 & 0x8000) as u16 | (exponent as u16) << 10 | (single >> 13 & 0x3ff) as u16
}

/// A number that looks random, by its index.
fn mixed(index: u64) -> u64 {
    let mut own = index
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(0x1234_5678_9abc_def1);
    own = (own ^ (own >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    own = (own ^ (own >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    own ^ (own >> 31)
}

impl Content {
    /// `kind.type*count`
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (of, count) = rest.split_once('*')?;
        let kind = match kind {
            "zero" => Kind::Zero,
            "iota" => Kind::Iota,
            "noise" => Kind::Noise,
            "small" => Kind::Small,
            "unit" => Kind::Unit,
            "real" => Kind::Real,
            _ => return None,
        };
        Some(Self {
            kind,
            of: Type::named(of)?,
            count: count.parse().ok()?,
        })
    }

    /// Bytes of an element.
    pub(super) fn size(&self) -> usize {
        self.of.size()
    }

    /// The bytes. Buffers of the same kind differ by `salt`.
    pub(super) fn bytes(&self, salt: u64) -> Vec<u8> {
        let each = |index: u64| {
            let noise = mixed(index ^ salt << 40);
            let value = match self.kind {
                Kind::Zero => 0.0,
                Kind::Iota => index as f64,
                Kind::Noise => return noise.to_le_bytes()[..self.size()].to_vec(),
                Kind::Small => (noise % 100) as f64,
                Kind::Unit => (noise % 129) as f64 / 16.0 - 4.0,
                Kind::Real => 1.0 + (noise >> 12) as f64 / (1u64 << 52) as f64,
            };
            self.of.bytes(value)
        };
        (0..self.count as u64).flat_map(each).collect()
    }
}

/// FNV-1a of 64 bits.
#[must_use]
pub fn checksum(bytes: impl IntoIterator<Item = u8>) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325;
    bytes.into_iter().fold(start, |sum: u64, own| {
        (sum ^ u64::from(own)).wrapping_mul(0x0100_0000_01b3)
    })
}
