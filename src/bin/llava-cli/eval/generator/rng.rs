//! Random numbers that are the same everywhere.

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): one number of 64 bits per step, any seed is a good one.
#[derive(Debug, Clone)]
pub struct Rng(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    /// A sequence of its own for every list of numbers.
    pub fn new(key: &[u64]) -> Self {
        let mut rng = Self(0x6c6c_6176_612d_6576);
        for &part in key {
            rng.0 ^= part;
            rng.0 = rng.bits();
        }
        rng
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// From 0 up to `n`, without `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u128::from(self.bits()) * (n as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i32, high: i32) -> i32 {
        let span = usize::try_from(high - low + 1).unwrap_or(1);
        low + i32::try_from(self.below(span)).unwrap_or(0)
    }

    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// One of a list that is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }

    /// Close to a standard normal distribution: the sum of four numbers of 16 bits.
    pub fn bell(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u64 = (0..4).map(|i| (bits >> (16 * i)) & 0xffff).sum();
        // the mean is 2 * 65535, the variance of each part 65536^2 / 12
        ((sum as f64 - 131_070.0) / (65_536.0 * 0.577_350_269_189_625_8)) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spread_and_repeatable() {
        let mut rng = Rng::new(&[1, 2]);
        let first: Vec<u64> = (0..4).map(|_| rng.bits()).collect();
        let mut again = Rng::new(&[1, 2]);
        assert!(first.iter().all(|&bits| bits == again.bits()));
        assert_ne!(Rng::new(&[2, 1]).bits(), first[0]);
        assert_ne!(Rng::new(&[1, 2, 0]).bits(), first[0]);

        let mut counts = [0_u32; 6];
        for _ in 0..6000 {
            counts[rng.below(6)] += 1;
        }
        assert!(counts.iter().all(|c| (850..1150).contains(c)), "{counts:?}");
        let bells: Vec<f64> = (0..20_000).map(|_| f64::from(rng.bell())).collect();
        let mean = bells.iter().sum::<f64>() / 20_000.0;
        let variance = bells.iter().map(|b| b * b).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn ranges_include_both_ends() {
        let mut rng = Rng::new(&[7]);
        let seen: std::collections::BTreeSet<i32> = (0..200).map(|_| rng.between(-1, 2)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [-1, 0, 1, 2]);
        let mut list = [1, 2, 3, 4, 5];
        rng.shuffle(&mut list);
        list.sort_unstable();
        assert_eq!(list, [1, 2, 3, 4, 5]);
    }
}
