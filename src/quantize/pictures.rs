//! Pictures for a first look: made by the program, the same on every machine.

use std::f32::consts::TAU;

use super::gate::GatePicture;
use crate::error::Result;
use crate::image::RgbImage;

/// SplitMix64 (Steele, Lea, Flood 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In `[0, 1)`.
    fn unit(&mut self) -> f32 {
        (self.draw() >> 40) as f32 / (1_u32 << 24) as f32
    }
}

/// A colour for a place, both coordinates from 0 to 1.
type Paint = Box<dyn FnMut(f32, f32) -> [f32; 3]>;

/// Eight pictures in several shapes that a vision tower has to look at in different ways: smooth light, noise, edges, shapes, strokes
/// like writing, textures with the spectrum of photographs.
///
/// # Errors
/// None in practice: [`Error::BadParameter`](crate::Error::BadParameter) if a picture of this function's had no pixels.
pub fn builtin_pictures() -> Result<Vec<GatePicture>> {
    let all: [(&str, u32, u32, Paint); 8] = [
        ("gradient", 336, 336, Box::new(|x, y| [x, y, 1.0 - 0.5 * (x + y)])),
        ("noise", 336, 336, noise()),
        ("stripes", 448, 336, Box::new(|x, y| grey(((x * 12.0 + y * 3.0).fract() < 0.4).into()))),
        ("shapes", 448, 448, shapes(3)),
        ("many shapes", 640, 360, shapes(24)),
        ("strokes", 512, 256, strokes()),
        ("texture", 480, 360, texture(1)),
        ("dark texture", 360, 480, dark(texture(2))),
    ];
    all.into_iter().map(|(name, width, height, paint)| draw(name, width, height, paint)).collect()
}

fn draw(name: &str, width_px: u32, height_px: u32, mut paint: Paint) -> Result<GatePicture> {
    let mut pixels = Vec::with_capacity(width_px as usize * height_px as usize * 3);
    for y in 0..height_px {
        for x in 0..width_px {
            let colour = paint(x as f32 / width_px as f32, y as f32 / height_px as f32);
            pixels.extend(colour.map(|c| (c.clamp(0.0, 1.0) * 255.0).round() as u8));
        }
    }
    Ok(GatePicture { name: name.to_owned(), image: RgbImage::from_rgb(width_px, height_px, pixels)?.into() })
}

fn grey(v: f32) -> [f32; 3] {
    [v; 3]
}

fn noise() -> Paint {
    let mut random = Random(1);
    Box::new(move |_, _| [random.unit(), random.unit(), random.unit()])
}

/// Filled circles and boxes on a soft ground.
fn shapes(n: u64) -> Paint {
    let mut random = Random(100 + n);
    let size = 0.5 / (n as f32).sqrt();
    let list: Vec<_> = (0..n)
        .map(|_| {
            let place = (random.unit(), random.unit());
            let colour = [random.unit(), random.unit(), random.unit()];
            (place, size * (0.5 + 0.5 * random.unit()), colour, random.unit() < 0.5)
        })
        .collect();
    Box::new(move |x, y| {
        let hit = list.iter().rev().find(|((cx, cy), r, _, round)| {
            let (dx, dy) = ((x - cx).abs(), (y - cy).abs());
            if *round { dx.hypot(dy) < *r } else { dx.max(dy) < *r * 0.8 }
        });
        hit.map_or([0.85, 0.9 - 0.2 * y, 0.8 + 0.1 * x], |(_, _, colour, _)| *colour)
    })
}

/// Dark strokes in lines on white, of the size and density of writing.
fn strokes() -> Paint {
    Box::new(|x, y| {
        let (line, column) = ((y * 9.0) as u64, (x * 40.0) as u64);
        let inside = ((y * 9.0).fract(), (x * 40.0).fract());
        let kind = Random(line * 101 + column).draw();
        let ink = !kind.is_multiple_of(7)
            && inside.0 > 0.2
            && inside.0 < 0.8
            && match kind % 4 {
                0 => inside.1 < 0.3,
                1 => (inside.0 - inside.1).abs() < 0.15,
                2 => inside.0 < 0.35 || inside.1 > 0.7,
                _ => (inside.0 - 0.5).hypot(inside.1 - 0.5) > 0.25 && inside.1 < 0.9,
            };
        grey(if ink { 0.08 } else { 0.97 })
    })
}

/// Waves of all directions whose strength falls with their frequency, as in photographs.
fn texture(seed: u64) -> Paint {
    let mut random = Random(7 * seed);
    let waves: Vec<_> = (0..48)
        .map(|i| {
            let frequency = 1.0 + 40.0 * (i as f32 / 48.0).powi(2);
            let angle = random.unit() * TAU;
            let phases = [random.unit(), random.unit(), random.unit()].map(|p| 0.8 * p * TAU);
            (frequency * angle.cos(), frequency * angle.sin(), phases, 0.35 / frequency.sqrt())
        })
        .collect();
    Box::new(move |x, y| {
        let mut colour = [0.5; 3];
        for (fx, fy, phases, strength) in &waves {
            for (c, phase) in colour.iter_mut().zip(phases) {
                *c += 0.35 * strength * (TAU * (fx * x + fy * y) + phase).sin();
            }
        }
        colour
    })
}

fn dark(mut paint: Paint) -> Paint {
    Box::new(move |x, y| paint(x, y).map(|c| c * 0.25))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_different_and_full() {
        let pictures = builtin_pictures().unwrap();
        assert_eq!(pictures.len(), 8);
        for (i, p) in pictures.iter().enumerate() {
            let image = p.image.pixels().unwrap();
            let bytes = image.pixels();
            let mean = bytes.iter().map(|&b| f64::from(b)).sum::<f64>() / bytes.len() as f64;
            let spread = bytes.iter().map(|&b| (f64::from(b) - mean).powi(2)).sum::<f64>() / bytes.len() as f64;
            assert!(spread.sqrt() > 5.0, "{} is flat: {mean} +- {}", p.name, spread.sqrt());
            assert!(pictures[..i].iter().all(|q| q.name != p.name && q.image.pixels().unwrap().pixels() != bytes));
        }
    }
}
