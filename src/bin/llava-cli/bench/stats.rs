//! Middle and ends of a few measurements.

use std::time::Duration;

/// Median, smallest and largest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stats {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Stats {
    /// Of values that are numbers; all NaN where there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let [Some(min), Some(max)] = [sorted.first().copied(), sorted.last().copied()] else {
            return Self { median: f64::NAN, min: f64::NAN, max: f64::NAN };
        };
        let median = if n % 2 == 1 { sorted[n / 2] } else { f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]) };
        Self { median, min, max }
    }
}

/// `a / b`, where a time too short to be seen counts as a nanosecond.
pub fn ratio(a: f64, b: f64) -> f64 {
    const NANOSECOND_MS: f64 = 1e-6;
    a.max(NANOSECOND_MS) / b.max(NANOSECOND_MS)
}

pub fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_numbers() {
        assert_eq!(Stats::of([3.0, 1.0, 2.0]), Stats { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(Stats::of([4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Stats::of([7.0]), Stats { median: 7.0, min: 7.0, max: 7.0 });
        assert!(Stats::of([]).median.is_nan());
    }

    #[test]
    fn no_time_at_all_is_no_division_by_zero() {
        assert!(ratio(1.0, 0.0).is_finite() && ratio(0.0, 0.0) == 1.0);
        assert_eq!(ms(Duration::from_micros(1500)), 1.5);
    }
}
