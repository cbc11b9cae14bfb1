//! How far two sets of rows are apart.

/// Distance between rows of the same pictures from two files, each row compared with its counterpart.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Distance {
    /// Rows compared.
    pub rows: usize,
    /// Mean cosine of a row with its counterpart; 1 is the same direction.
    pub mean_cosine: f64,
    /// Least cosine of any row.
    pub worst_cosine: f64,
    /// Which row that is, counted over everything compared.
    pub worst_row: usize,
    /// L2 norm of the difference, divided by that of the source's rows.
    pub relative_l2: f64,
    sums: Sums,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Sums {
    cosine: f64,
    difference: f64,
    source: f64,
}

impl Distance {
    /// Compares two `[rows, width]` matrices, row-major; `None` where the shapes differ or there is nothing to compare.
    #[must_use]
    pub fn between(source: &[f32], result: &[f32], width: usize) -> Option<Self> {
        if width == 0 || source.is_empty() || source.len() != result.len() || !source.len().is_multiple_of(width) {
            return None;
        }
        let mut all: Option<Self> = None;
        for (a, b) in source.chunks_exact(width).zip(result.chunks_exact(width)) {
            let one = Self::of_row(a, b);
            all = Some(all.map_or(one, |sum| sum.and(&one)));
        }
        all
    }

    fn of_row(a: &[f32], b: &[f32]) -> Self {
        let (mut ab, mut aa, mut bb, mut dd) = (0.0, 0.0, 0.0, 0.0);
        for (&x, &y) in a.iter().zip(b) {
            let (x, y) = (f64::from(x), f64::from(y));
            ab += x * y;
            aa += x * x;
            bb += y * y;
            dd += (x - y) * (x - y);
        }
        let cosine = match (aa > 0.0, bb > 0.0) {
            // NaN would compare as neither better nor worse
            _ if !(aa + bb).is_finite() => -1.0,
            (true, true) => ab / (aa.sqrt() * bb.sqrt()),
            // two rows of zeros are the same
            (false, false) => 1.0,
            _ => 0.0,
        };
        let sums = Sums { cosine, difference: dd, source: aa };
        Self { rows: 1, mean_cosine: cosine, worst_cosine: cosine, worst_row: 0, relative_l2: relative(&sums), sums }
    }

    /// Both together; the other one's rows are counted behind this one's.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let sums = Sums {
            cosine: self.sums.cosine + other.sums.cosine,
            difference: self.sums.difference + other.sums.difference,
            source: self.sums.source + other.sums.source,
        };
        let rows = self.rows + other.rows;
        let (worst_cosine, worst_row) = if other.worst_cosine < self.worst_cosine {
            (other.worst_cosine, self.rows + other.worst_row)
        } else {
            (self.worst_cosine, self.worst_row)
        };
        Self {
            rows,
            mean_cosine: sums.cosine / rows as f64,
            worst_cosine,
            worst_row,
            relative_l2: relative(&sums),
            sums,
        }
    }
}

fn relative(sums: &Sums) -> f64 {
    match (sums.difference > 0.0, sums.source > 0.0) {
        (_, true) => (sums.difference / sums.source).sqrt(),
        (false, false) => 0.0,
        (true, false) => f64::INFINITY,
    }
}

/// Kullback-Leibler divergence in nats of the distribution that `result`'s logits give from the one that `source`'s give, and
/// whether both find the same token likeliest. `None` for logits of different vocabularies or none at all.
pub(super) fn answer_distance(source: &[f32], result: &[f32]) -> Option<(f64, bool)> {
    if source.is_empty() || source.len() != result.len() {
        return None;
    }
    let log_sum = |logits: &[f32]| {
        let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        most + logits.iter().map(|&l| (f64::from(l) - most).exp()).sum::<f64>().ln()
    };
    let (p_sum, q_sum) = (log_sum(source), log_sum(result));
    let divergence: f64 = source
        .iter()
        .zip(result)
        .map(|(&p, &q)| {
            let (p, q) = (f64::from(p) - p_sum, f64::from(q) - q_sum);
            if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }
        })
        .sum();
    // `max` would take NaN for nothing
    if !divergence.is_finite() {
        return Some((f64::INFINITY, false));
    }
    let best = |logits: &[f32]| logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(i, _)| i);
    Some((divergence.max(0.0), best(source) == best(result)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_by_hand() {
        let d = Distance::between(&[3.0, 4.0, 1.0, 0.0], &[3.0, 4.0, 0.0, 2.0], 2).unwrap();
        assert_eq!((d.rows, d.mean_cosine, d.worst_cosine, d.worst_row), (2, 0.5, 0.0, 1));
        assert!((d.relative_l2 - (5.0_f64 / 26.0).sqrt()).abs() < 1e-12);
        let same = Distance::between(&[1.0, -2.0], &[1.0, -2.0], 2).unwrap();
        assert!((same.mean_cosine - 1.0).abs() < 1e-12 && same.relative_l2 == 0.0);
        let both = same.and(&d);
        assert_eq!((both.rows, both.worst_row), (3, 2));
        assert!((both.mean_cosine - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn zeros_and_shapes() {
        let zero = |a: [f32; 2], b: [f32; 2]| Distance::between(&a, &b, 2).unwrap();
        assert_eq!(zero([0.0; 2], [0.0; 2]).worst_cosine, 1.0);
        assert_eq!(zero([0.0; 2], [0.0; 2]).relative_l2, 0.0);
        assert_eq!(zero([0.0; 2], [1.0, 0.0]).worst_cosine, 0.0);
        assert_eq!(zero([0.0; 2], [1.0, 0.0]).relative_l2, f64::INFINITY);
        assert_eq!(zero([1.0, 0.0], [f32::NAN, 0.0]).worst_cosine, -1.0);
        assert!(Distance::between(&[1.0; 4], &[1.0; 4], 3).is_none());
        assert!(Distance::between(&[1.0; 4], &[1.0; 2], 2).is_none());
        assert!(Distance::between(&[], &[], 2).is_none());
    }

    #[test]
    fn distributions() {
        let (kl, same) = answer_distance(&[0.0, 0.0], &[0.0, 0.0]).unwrap();
        assert_eq!((kl, same), (0.0, true));
        // p = (1/2, 1/2), q = (3/4, 1/4)
        let (kl, _) = answer_distance(&[5.0, 5.0], &[3.0_f32.ln(), 0.0]).unwrap();
        assert!((kl - (0.5 * (2.0_f64 / 3.0).ln() + 0.5 * 2.0_f64.ln())).abs() < 1e-6, "{kl}");
        let (kl, same) = answer_distance(&[f32::NEG_INFINITY, 1.0], &[0.0, 1.0]).unwrap();
        assert!(kl > 0.3 && same);
        assert!(!answer_distance(&[0.0, 1.0], &[1.0, 0.0]).unwrap().1);
        assert!(answer_distance(&[0.0], &[0.0, 1.0]).is_none());
        for bad in [f32::NAN, f32::INFINITY] {
            for (a, b) in [([0.0, 1.0], [bad, 1.0]), ([bad, 1.0], [0.0, 1.0]), ([bad; 2], [bad; 2])] {
                assert_eq!(answer_distance(&a, &b), Some((f64::INFINITY, false)), "{a:?} {b:?}");
            }
        }
    }
}
