//! Reading bits out of entropy-coded data, where `FF 00` means a byte of `FF` and `FF` followed by anything else ends it.

use super::{Fault, damaged};

/// Bits most significant first. Bits beyond the end of the data are never handed out.
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The next bits, left-aligned; below `count` of them it is zero.
    window: u64,
    count: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, window: 0, count: 0 }
    }

    /// Fills the window to more than 48 bits unless the data end.
    #[inline]
    fn refill(&mut self) {
        while self.count <= 48 {
            let Some(&byte) = self.bytes.get(self.at) else { return };
            if byte == 0xFF {
                if self.bytes.get(self.at + 1) != Some(&0) {
                    return;
                }
                self.at += 2;
            } else {
                self.at += 1;
            }
            self.window |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The next 16 bits without taking them; zeros stand for what is missing.
    #[inline]
    pub(super) fn peek16(&mut self) -> u32 {
        if self.count < 16 {
            self.refill();
        }
        (self.window >> 48) as u32
    }

    /// Takes `n` bits that were peeked.
    #[inline]
    pub(super) fn skip(&mut self, n: u32) -> Result<(), Fault> {
        if n > self.count {
            return Err(damaged(format!(
                "the picture data end too early, at byte {} of {}",
                self.at,
                self.bytes.len()
            )));
        }
        self.window <<= n;
        self.count -= n;
        Ok(())
    }

    /// The next `n` bits as a number, `n` up to 16.
    #[inline]
    pub(super) fn take(&mut self, n: u32) -> Result<u32, Fault> {
        if n == 0 {
            return Ok(0);
        }
        let value = self.peek16() >> (16 - n);
        self.skip(n)?;
        Ok(value)
    }

    /// The next bit.
    #[inline]
    pub(super) fn bit(&mut self) -> Result<bool, Fault> {
        Ok(self.take(1)? != 0)
    }

    /// A signed difference of `n` bits, `n` up to 15 (T.81 figure F.12): a leading 0 means negative.
    #[inline]
    pub(super) fn signed(&mut self, n: u32) -> Result<i32, Fault> {
        if n == 0 {
            return Ok(0);
        }
        let value = self.take(n)? as i32;
        Ok(if value < 1 << (n - 1) { value + 1 - (1 << n) } else { value })
    }

    /// Drops what is left before the next marker and gives the marker's code and the position after it.
    pub(super) fn next_marker(&mut self) -> Option<(u8, usize)> {
        self.window = 0;
        self.count = 0;
        find_marker(self.bytes, self.at)
    }

    /// Goes on after a restart marker.
    pub(super) fn restart_at(&mut self, at: usize) {
        self.at = at;
    }
}

/// The next marker at or after `at`: its code and the position after it. Fill bytes and stuffed zeros are passed over.
pub(super) fn find_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        while bytes.get(at) == Some(&0xFF) {
            at += 1;
        }
        let code = *bytes.get(at)?;
        at += 1;
        if code != 0 {
            return Some((code, at));
        }
    }
}
