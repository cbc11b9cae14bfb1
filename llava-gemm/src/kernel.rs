//! Which instructions are used: what the CPU has, and what `LLAVA_GEMM` asks for.

use std::fmt;

/// A set of kernels, by the instructions they need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kernel {
    /// Plain Rust: the oracle of the tests.
    Scalar = 1,
    /// 256-bit integer arithmetic without dot products.
    Avx2 = 2,
    /// 256-bit dot products (`VPDPBUSD`, VEX encoded).
    AvxVnni = 3,
    /// 512-bit dot products.
    Avx512Vnni = 4,
}

impl Kernel {
    /// Every kernel, slowest first.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::AvxVnni, Self::Avx512Vnni];

    /// The name that `LLAVA_GEMM` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::AvxVnni => "avxvnni",
            Self::Avx512Vnni => "avx512vnni",
        }
    }

    /// Whether the CPU at hand has the instructions.
    #[must_use]
    pub fn available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let wanted = is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            let avx2 = is_x86_feature_detected!("avx2") && wanted;
            match self {
                Self::Scalar => true,
                Self::Avx2 => avx2,
                Self::AvxVnni => avx2 && is_x86_feature_detected!("avxvnni"),
                Self::Avx512Vnni => {
                    avx2 && is_x86_feature_detected!("avx512f")
                        && is_x86_feature_detected!("avx512bw")
                        && is_x86_feature_detected!("avx512vl")
                        && is_x86_feature_detected!("avx512dq")
                        && is_x86_feature_detected!("avx512vnni")
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Scalar
        }
    }

    /// The fastest kernel of this CPU. `None` where only the scalar one is left, which no caller wants: on ARM ggml's own
    /// kernels use dot products that stable Rust has no intrinsics for.
    #[must_use]
    pub fn best() -> Option<Self> {
        Self::ALL.into_iter().rev().find(|kernel| *kernel != Self::Scalar && kernel.available())
    }

    /// The kernel of a number made by `as u8`.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kernel| *kernel as u8 == number)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What `LLAVA_GEMM` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection {
    /// Not set: the fastest kernel there is.
    Auto,
    /// `off`: the caller's own code stays in charge.
    Off,
    /// One kernel by name.
    Only(Kernel),
}

/// A value of `LLAVA_GEMM` that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SelectionError {
    /// No such word.
    Unknown(String),
    /// The CPU lacks the instructions.
    Unavailable(Kernel),
}

impl fmt::Display for SelectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => {
                write!(f, "LLAVA_GEMM={word}: known are auto, off, scalar, avx2, avxvnni and avx512vnni")
            }
            Self::Unavailable(kernel) => write!(f, "LLAVA_GEMM={kernel}: this CPU does not have these instructions"),
        }
    }
}

impl std::error::Error for SelectionError {}

impl Selection {
    /// Reads a value of `LLAVA_GEMM`; `None` and the empty text mean [`Selection::Auto`].
    ///
    /// # Errors
    /// [`SelectionError::Unknown`] for a word that is none of the names.
    pub fn parse(value: Option<&str>) -> Result<Self, SelectionError> {
        match value.map(str::trim) {
            None | Some("" | "auto") => Ok(Self::Auto),
            Some("off" | "0") => Ok(Self::Off),
            Some(word) => Kernel::ALL
                .into_iter()
                .find(|kernel| kernel.name() == word)
                .map(Self::Only)
                .ok_or_else(|| SelectionError::Unknown(word.to_owned())),
        }
    }

    /// The kernel that this means on the CPU at hand; `None` leaves the caller's own code in charge.
    ///
    /// # Errors
    /// [`SelectionError::Unavailable`] where the CPU lacks the instructions of a kernel that was asked for by name.
    pub fn kernel(self) -> Result<Option<Kernel>, SelectionError> {
        match self {
            Self::Off => Ok(None),
            Self::Auto => Ok(Kernel::best()),
            Self::Only(kernel) if kernel.available() => Ok(Some(kernel)),
            Self::Only(kernel) => Err(SelectionError::Unavailable(kernel)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_mean_what_they_say() {
        assert_eq!(Selection::parse(None), Ok(Selection::Auto));
        assert_eq!(Selection::parse(Some(" ")), Ok(Selection::Auto));
        assert_eq!(Selection::parse(Some("off")), Ok(Selection::Off));
        for kernel in Kernel::ALL {
            assert_eq!(Selection::parse(Some(kernel.name())), Ok(Selection::Only(kernel)));
            assert_eq!(Kernel::from_number(kernel as u8), Some(kernel));
        }
        let error = Selection::parse(Some("avx1024")).unwrap_err();
        assert!(error.to_string().contains("avx1024") && error.to_string().contains("avx512vnni"), "{error}");
    }

    #[test]
    fn a_kernel_by_name_is_taken_or_refused() {
        for kernel in Kernel::ALL {
            match Selection::Only(kernel).kernel() {
                Ok(chosen) => assert!(chosen == Some(kernel) && kernel.available()),
                Err(error) => assert!(error == SelectionError::Unavailable(kernel) && !kernel.available()),
            }
        }
        assert_eq!(Selection::Off.kernel(), Ok(None));
        assert_eq!(Selection::Auto.kernel(), Ok(Kernel::best()));
        assert_ne!(Kernel::best(), Some(Kernel::Scalar));
    }
}
