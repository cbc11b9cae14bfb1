//! What lies behind the objects, and the noise over everything.

use std::sync::OnceLock;

use super::canvas::{Canvas, SIDE};
use super::rng::Rng;

/// A flat, graded or blotchy ground of middle brightness, on which every colour of an object shows.
pub fn background(rng: &mut Rng) -> Canvas {
    let grey = rng.uniform(80.0, 176.0);
    let tint: [f64; 3] = std::array::from_fn(|_| grey + rng.uniform(-16.0, 16.0));
    match rng.below(4) {
        0 => Canvas::from_fn(|_, _, channel| tint[channel] as u8),
        1 => {
            let other = tint.map(|t| (t + rng.uniform(-30.0, 30.0)).clamp(70.0, 186.0));
            let down = rng.chance(0.5);
            Canvas::from_fn(|x, y, channel| {
                let along = f64::from(if down { y } else { x }) / f64::from(SIDE - 1);
                (tint[channel] + (other[channel] - tint[channel]) * along) as u8
            })
        }
        _ => blotches(rng, tint),
    }
}

/// A coarse grid of colours, scaled up with linear interpolation.
fn blotches(rng: &mut Rng, tint: [f64; 3]) -> Canvas {
    let n = rng.between(3, 11);
    let cells: Vec<f64> =
        (0..n * n).flat_map(|_| tint).map(|t| (t + rng.uniform(-18.0, 18.0)).clamp(66.0, 190.0).floor()).collect();
    let cell = |x: i32, y: i32, channel: usize| {
        let (x, y) = (x.clamp(0, n - 1), y.clamp(0, n - 1));
        cells[usize::try_from((y * n + x) * 3).unwrap_or(0) + channel]
    };
    let place = |pixel: i32| {
        let at = (f64::from(pixel) + 0.5) * f64::from(n) / f64::from(SIDE) - 0.5;
        (at.floor() as i32, at - at.floor())
    };
    Canvas::from_fn(|x, y, channel| {
        let ((x, fx), (y, fy)) = (place(x), place(y));
        let row = |y: i32| cell(x, y, channel) * (1.0 - fx) + cell(x + 1, y, channel) * fx;
        (row(y) * (1.0 - fy) + row(y + 1) * fy + 0.5) as u8
    })
}

/// Adds noise and changes the brightness a little.
pub fn finish(rng: &mut Rng, mut canvas: Canvas) -> Canvas {
    const TABLE: usize = 512;
    static NOISE: OnceLock<Vec<f32>> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut rng = Rng::new(&[7]);
        (0..TABLE * TABLE * 3).map(|_| rng.bell()).collect()
    });
    let side = usize::try_from(SIDE).unwrap_or(0);
    let (left, top) = (rng.below(TABLE - side), rng.below(TABLE - side));
    let strength = rng.uniform(0.0, 5.0) as f32;
    let gain = rng.uniform(0.92, 1.06) as f32;
    for (y, row) in canvas.samples_mut().chunks_exact_mut(side * 3).enumerate() {
        let from = ((top + y) * TABLE + left) * 3;
        for (sample, noise) in row.iter_mut().zip(&noise[from..from + side * 3]) {
            *sample = ((f32::from(*sample) + noise * strength) * gain + 0.5).clamp(0.0, 255.0) as u8;
        }
    }
    canvas
}
