//! Counts that must never be mixed up: tokens (KV cells, rows) and positions (what RoPE sees).
//!
//! Under M-RoPE a picture of 8 x 6 visual tokens fills 48 cells but advances the position by 8. Mixing the two is how
//! prompts end up overlapping themselves.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

macro_rules! count {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub usize);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// The plain number.
            #[must_use]
            pub const fn get(self) -> usize {
                self.0
            }

            /// `self - other`, or zero where that would be negative.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Add::add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

count! {
    /// A number of tokens: rows of an embedding, cells of the KV cache.
    TokenCount
}

count! {
    /// A number of positions: by how much a piece of the prompt advances the position of what follows.
    PosCount
}
