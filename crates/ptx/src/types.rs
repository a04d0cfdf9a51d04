//! Types and state spaces.

/// A fundamental or packed type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names of PTX")]
pub(crate) enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    B128,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    E4m3,
    E5m2,
    E4m3x2,
    E5m2x2,
    F32,
    F32x2,
    F64,
    U16x2,
    S16x2,
    U8x4,
    S8x4,
    U4,
    S4,
    B1,
    Pred,
}

impl Type {
    /// The type that a modifier names, without its dot.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "s8" => Self::S8,
            "s16" => Self::S16,
            "s32" => Self::S32,
            "s64" => Self::S64,
            "b8" => Self::B8,
            "b16" => Self::B16,
            "b32" => Self::B32,
            "b64" => Self::B64,
            "b128" => Self::B128,
            "f16" => Self::F16,
            "f16x2" => Self::F16x2,
            "bf16" => Self::Bf16,
            "bf16x2" => Self::Bf16x2,
            "tf32" => Self::Tf32,
            "e4m3" => Self::E4m3,
            "e5m2" => Self::E5m2,
            "e4m3x2" => Self::E4m3x2,
            "e5m2x2" => Self::E5m2x2,
            "f32" => Self::F32,
            "f32x2" => Self::F32x2,
            "f64" => Self::F64,
            "u16x2" => Self::U16x2,
            "s16x2" => Self::S16x2,
            "u8x4" => Self::U8x4,
            "s8x4" => Self::S8x4,
            "u4" => Self::U4,
            "s4" => Self::S4,
            "b1" => Self::B1,
            "pred" => Self::Pred,
            _ => return None,
        })
    }

    /// The number of bits. A predicate has one.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Pred | Self::B1 => 1,
            Self::U4 | Self::S4 => 4,
            Self::U8 | Self::S8 | Self::B8 | Self::E4m3 | Self::E5m2 => 8,
            Self::U16 | Self::S16 | Self::B16 | Self::F16 | Self::Bf16 => 16,
            Self::E4m3x2 | Self::E5m2x2 => 16,
            Self::U64 | Self::S64 | Self::B64 | Self::F64 | Self::F32x2 => 64,
            Self::B128 => 128,
            _ => 32,
        }
    }

    /// The number of bytes in memory.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether it is a signed integer.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64)
    }

    /// Whether it is a number with a fraction.
    pub(crate) fn is_float(self) -> bool {
        matches!(
            self,
            Self::F16
                | Self::F16x2
                | Self::Bf16
                | Self::Bf16x2
                | Self::F32
                | Self::F32x2
                | Self::F64
        )
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    /// Windows of the other spaces, and global memory everywhere else.
    Generic,
    Global,
    Const,
    Shared,
    /// Shared memory of all blocks of a cluster.
    SharedCluster,
    Local,
    Param,
    Register,
}
