//! The few statistics a comparison needs.

/// Two-sided 95 % of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// A share of successes with its 95 % interval, all from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

/// Wilson's score interval (1927). Nothing tried is known to lie between 0 and 1.
pub fn wilson(successes: usize, tried: usize) -> Share {
    if tried == 0 {
        return Share { value: f64::NAN, low: 0.0, high: 1.0 };
    }
    let n = tried as f64;
    let p = successes as f64 / n;
    let z2 = Z * Z / n;
    let middle = (p + z2 / 2.0) / (1.0 + z2);
    let half = Z * (p * (1.0 - p) / n + z2 / (4.0 * n)).sqrt() / (1.0 + z2);
    // at the ends the interval touches p, whatever rounding says
    let low = if successes == 0 { 0.0 } else { (middle - half).max(0.0) };
    let high = if successes == tried { 1.0 } else { (middle + half).min(1.0) };
    Share { value: p, low, high }
}

/// Two-sided exact p of McNemar's test: how likely it is that two equally good variants differ at least this much, given how
/// many items only the one or only the other got right.
pub fn mcnemar(only_first: usize, only_second: usize) -> f64 {
    let n = only_first + only_second;
    if n == 0 {
        return 1.0;
    }
    // binomial terms in logarithms: 0.5^n leaves the range of f64 at about a thousand
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut sum = log_term.exp();
    for k in 1..=only_first.min(only_second) {
        log_term += ((n - k + 1) as f64 / k as f64).ln();
        sum += log_term.exp();
    }
    (2.0 * sum).min(1.0)
}

/// Kullback-Leibler divergence in nats of `other` from `reference`, both given as logits of one vocabulary.
pub fn divergence(reference: &[f32], other: &[f32]) -> f64 {
    let (p, q) = (log_softmax(reference), log_softmax(other));
    let sum: f64 = p.zip(q).map(|(p, q)| if p == f64::NEG_INFINITY { 0.0 } else { p.exp() * (p - q) }).sum();
    // rounding can leave a tiny negative number where both are equal
    sum.max(0.0)
}

fn log_softmax(logits: &[f32]) -> impl Iterator<Item = f64> {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let sum = most + logits.iter().map(|&l| (f64::from(l) - most).exp()).sum::<f64>().ln();
    logits.iter().map(move |&l| f64::from(l) - sum)
}

/// Index of the largest value, the first of equal ones.
pub fn argmax(values: &[f32]) -> Option<usize> {
    let mut best: Option<(usize, f32)> = None;
    for (i, &value) in values.iter().enumerate() {
        if best.is_none_or(|(_, most)| value > most) {
            best = Some((i, value));
        }
    }
    best.map(|(i, _)| i)
}

/// `None` where there is nothing to take the mean of.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.into_iter().fold((0.0, 0_u64), |(sum, n), v| (sum + v, n + 1));
    (n > 0).then(|| sum / n as f64)
}

/// The middle value; of an even number of values the mean of the two in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    (n > 0).then(|| (values[(n - 1) / 2] + values[n / 2]) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-4
    }

    /// Values of R's `prop.test(.., correct = FALSE)` and of Newcombe (1998), table I.
    #[test]
    fn wilson_intervals() {
        for (k, n, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
            (20, 20, 0.8389, 1.0),
        ] {
            let share = wilson(k, n);
            assert!(close(share.low, low) && close(share.high, high), "{k}/{n}: {share:?}");
        }
        assert_eq!((wilson(0, 0).low, wilson(0, 0).high), (0.0, 1.0));
    }

    /// Two-sided binomial tests with p = 1/2.
    #[test]
    fn mcnemar_p_values() {
        for (b, c, p) in [(0, 0, 1.0), (1, 0, 1.0), (0, 5, 0.0625), (10, 2, 0.038_574), (3, 3, 1.0), (6, 16, 0.052_479)]
        {
            assert!(close(mcnemar(b, c), p), "{b} {c}: {}", mcnemar(b, c));
            assert_eq!(mcnemar(b, c), mcnemar(c, b));
        }
        let large = mcnemar(2000, 2100);
        assert!(large > 0.1 && large < 0.13, "{large}");
        assert!(mcnemar(0, 3000) < 1e-300);
    }

    #[test]
    fn divergences() {
        let ln = |p: f64| p.ln() as f32;
        // 0.5 ln(0.5 / 0.25) + 0.5 ln(0.5 / 0.75)
        let kl = divergence(&[0.0, 0.0], &[ln(0.25), ln(0.75)]);
        assert!((kl - 0.143_841).abs() < 1e-6, "{kl}");
        assert_eq!(divergence(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]), 0.0);
        // a common offset of logits changes nothing
        assert!(divergence(&[1.0, 2.0], &[1001.0, 1002.0]) < 1e-12);
        assert!(divergence(&[f32::NEG_INFINITY, 0.0], &[0.0, 0.0]) - std::f64::consts::LN_2 < 1e-12);
    }

    #[test]
    fn middles() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0, -1.0]), Some(1));
        assert_eq!(argmax(&[]), None);
        assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
        assert_eq!(mean([]), None);
        assert_eq!(median(vec![5.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
