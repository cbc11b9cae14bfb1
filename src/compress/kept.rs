//! How much of a tile's information the rows that came out keep.

use rayon::prelude::*;

use super::rows::Rows;
use super::scene::Means;
use super::tokens::VisualTokens;
use super::vector::dot;
use crate::error::{Error, Result};

/// What of a row earlier ones leave, as a share of its own energy, below which it is a combination of them and rounding.
const NOTHING: f64 = 1e-6;

/// Share of a tile's centred energy that lies in the span of the rows that came out, 0 to 1, whatever the method: of cells that stayed,
/// of means, of learned answers. What [`super::EnergyCurve::kept`] says of its own picks.
///
/// # Errors
/// [`Error::BadParameter`] where `tokens` came from rows that lie otherwise.
pub fn kept_energy(rows: &Rows<'_>, tokens: &VisualTokens) -> Result<f32> {
    let layout = rows.layout();
    if tokens.source() != layout || tokens.embedding().width() != rows.embedding().width() {
        return Err(Error::BadParameter {
            name: "visual tokens",
            value: format!("{} rows", tokens.embedding().rows()),
            reason: format!("they did not come from these {} x {} cells", layout.columns(), layout.rows()),
        });
    }
    let kept: Vec<usize> = (0..tokens.anchors().len()).filter(|&row| !tokens.members(row).is_empty()).collect();
    if kept.len() >= layout.cells() {
        return Ok(1.0);
    }
    let means = Means::new(rows);
    let centred = means.centred(rows);
    let made: Vec<Vec<f32>> = kept
        .iter()
        .map(|&row| {
            let features = &tokens.embedding().row(row)[..rows.main()];
            features.iter().zip(&means.mean).map(|(value, mean)| value - mean).collect()
        })
        .collect();
    let base = orthonormal(made);
    let energies: Vec<(f64, f64)> = (0..centred.len())
        .into_par_iter()
        .map(|cell| {
            let features = centred.row(cell);
            let inside: f64 = base.iter().map(|b| f64::from(dot(features, b)).powi(2)).sum();
            (f64::from(dot(features, features)), inside)
        })
        .collect();
    // in the order of cells: sums do not depend on the threads
    let (all, inside) = energies.iter().fold((0.0, 0.0), |(all, inside), (a, i)| (all + a, inside + i.min(*a)));
    Ok(if all > 0.0 { (inside / all).min(1.0) as f32 } else { 1.0 })
}

/// Unit rows with the span of these, by Gram and Schmidt, each row twice: once leaves what rounding adds.
fn orthonormal(rows: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let mut base: Vec<Vec<f32>> = Vec::with_capacity(rows.len());
    for mut row in rows {
        let whole = f64::from(dot(&row, &row));
        for _ in 0..2 {
            let shares: Vec<f32> = base.par_iter().with_min_len(16).map(|b| dot(&row, b)).collect();
            for (share, b) in shares.iter().zip(&base) {
                row.iter_mut().zip(b).for_each(|(value, unit)| *value -= share * unit);
            }
        }
        let left = f64::from(dot(&row, &row));
        if left > whole * NOTHING && left > 0.0 {
            let scale = (1.0 / left.sqrt()) as f32;
            row.iter_mut().for_each(|value| *value *= scale);
            base.push(row);
        }
    }
    base
}

#[cfg(test)]
mod tests {
    use super::super::tests::{noise, rows_of};
    use super::super::{Compressor, CompressorSpec, energy_curve};
    use super::*;
    use std::sync::Arc;

    fn built(spec: &str) -> Arc<dyn Compressor> {
        spec.parse::<CompressorSpec>().unwrap().build(None).unwrap()
    }

    #[test]
    fn picks_by_energy_keep_what_their_curve_says() {
        let (embedding, layout) =
            rows_of(7, 6, 24, |i| noise(3, i) + if i % 24 < 4 { noise(5, i / 96) * 3.0 } else { 0.0 });
        let rows = Rows::new(&embedding, layout, 24).unwrap();
        let curve = energy_curve(&rows, 1.0, usize::MAX);
        let energy = built("energy");
        for budget in [1, 5, 12, 20] {
            let tokens = energy.apply(&rows, &energy.plan(&layout, budget).unwrap()).unwrap();
            let kept = kept_energy(&rows, &tokens).unwrap();
            assert!((kept - curve.kept(budget)).abs() < 1e-4, "{budget}: {kept} and {}", curve.kept(budget));
        }
    }

    #[test]
    fn every_method_keeps_something_and_all_rows_keep_everything() {
        let (embedding, layout) = rows_of(8, 8, 96, |i| noise(7, i));
        let rows = Rows::new(&embedding, layout, 96).unwrap();
        for spec in ["pool", "stratified", "random", "div", "div-c:merge=0.5", "cover", "tome-local"] {
            let compressor = built(spec);
            let of = |budget| {
                let tokens = compressor.apply(&rows, &compressor.plan(&layout, budget).unwrap()).unwrap();
                kept_energy(&rows, &tokens).unwrap()
            };
            let (few, many, all) = (of(4), of(36), of(64));
            assert!(0.0 < few && few < many && many < 1.0 && all == 1.0, "{spec}: {few} {many} {all}");
        }
    }

    #[test]
    fn a_plain_picture_is_explained_and_other_rows_are_refused() {
        let (embedding, layout) = rows_of(4, 4, 8, |_| 1.5);
        let rows = Rows::new(&embedding, layout, 8).unwrap();
        let tokens = built("div-c").apply(&rows, &built("div-c").plan(&layout, 3).unwrap()).unwrap();
        assert_eq!(kept_energy(&rows, &tokens).unwrap(), 1.0);
        let (other, other_layout) = rows_of(4, 5, 8, |_| 1.5);
        let other = Rows::new(&other, other_layout, 8).unwrap();
        assert_eq!(kept_energy(&other, &tokens).unwrap_err().code(), "bad-parameter");
    }
}
