//! A picture to draw on. Edges are hard: no pixel is half covered.

use llava::image::RgbImage;

/// Width and height of every generated picture, in pixels.
pub const SIDE: i32 = 224;

pub type Colour = [u8; 3];

/// RGB samples, row-major `[SIDE, SIDE, 3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canvas(Vec<u8>);

fn index(x: i32, y: i32) -> Option<usize> {
    let inside = (0..SIDE).contains(&x) && (0..SIDE).contains(&y);
    inside.then(|| usize::try_from((y * SIDE + x) * 3).unwrap_or(0))
}

impl Canvas {
    /// A picture whose samples are given by column, row and channel.
    pub fn from_fn(mut sample: impl FnMut(i32, i32, usize) -> u8) -> Self {
        let mut samples = Vec::new();
        for y in 0..SIDE {
            for x in 0..SIDE {
                samples.extend((0..3).map(|channel| sample(x, y, channel)));
            }
        }
        Self(samples)
    }

    #[cfg(test)]
    pub fn samples(&self) -> &[u8] {
        &self.0
    }

    pub fn samples_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }

    pub fn into_image(self) -> llava::Result<RgbImage> {
        let side = u32::try_from(SIDE).unwrap_or(0);
        RgbImage::from_rgb(side, side, self.0)
    }

    /// Draws a pixel; outside of the picture nothing happens.
    pub fn set(&mut self, x: i32, y: i32, colour: Colour) {
        if let Some(at) = index(x, y) {
            self.0[at..at + 3].copy_from_slice(&colour);
        }
    }

    /// Draws a pixel with a coverage of 0 to 255.
    pub fn blend(&mut self, x: i32, y: i32, colour: Colour, coverage: u8) {
        let Some(at) = index(x, y) else { return };
        let alpha = u32::from(coverage);
        for (sample, ink) in self.0[at..at + 3].iter_mut().zip(colour) {
            let sum = u32::from(ink) * alpha + u32::from(*sample) * (255 - alpha);
            *sample = u8::try_from((sum + 127) / 255).unwrap_or(u8::MAX);
        }
    }

    pub fn horizontal(&mut self, from: i32, to: i32, y: i32, colour: Colour) {
        for x in from..=to {
            self.set(x, y, colour);
        }
    }

    pub fn vertical(&mut self, x: i32, from: i32, to: i32, colour: Colour) {
        for y in from..=to {
            self.set(x, y, colour);
        }
    }

    /// Fills the circle around a point.
    pub fn disc(&mut self, x: f64, y: f64, radius: f64, colour: Colour) {
        // the box is cut to whole pixels first, both ends belong to it
        let [left, top, right, bottom] = [x - radius, y - radius, x + radius, y + radius].map(|v| v as i32);
        let (cx, cy) = (f64::from(left + right) / 2.0, f64::from(top + bottom) / 2.0);
        let (rx, ry) = (f64::from(right - left + 1) / 2.0, f64::from(bottom - top + 1) / 2.0);
        for py in top..=bottom {
            for px in left..=right {
                let (dx, dy) = ((f64::from(px) - cx) / rx, (f64::from(py) - cy) / ry);
                if dx * dx + dy * dy <= 1.0 {
                    self.set(px, py, colour);
                }
            }
        }
    }

    /// Fills a polygon whose corners are cut to whole pixels. Its border belongs to it.
    pub fn polygon(&mut self, corners: &[(f64, f64)], colour: Colour) {
        let corners: Vec<(i32, i32)> = corners.iter().map(|&(x, y)| (x as i32, y as i32)).collect();
        let (Some(top), Some(bottom)) = (corners.iter().map(|c| c.1).min(), corners.iter().map(|c| c.1).max()) else {
            return;
        };
        let edges: Vec<_> = corners.iter().copied().zip(corners.iter().copied().cycle().skip(1)).collect();
        for y in top..=bottom {
            // a corner counts for the edge below it, then for the edge above it: together they are the closed polygon
            for below in [true, false] {
                let mut crossings: Vec<f64> = edges.iter().filter_map(|&(a, b)| crossing(a, b, y, below)).collect();
                crossings.sort_by(f64::total_cmp);
                for pair in crossings.chunks_exact(2) {
                    self.horizontal(pair[0].ceil() as i32, pair[1].floor() as i32, y, colour);
                }
            }
            for &((ax, ay), (bx, by)) in &edges {
                if ay == y && by == y {
                    self.horizontal(ax.min(bx), ax.max(bx), y, colour);
                }
            }
        }
    }
}

/// Where an edge meets a row of pixels. `below`: its upper end belongs to it, otherwise its lower one.
fn crossing((ax, ay): (i32, i32), (bx, by): (i32, i32), y: i32, below: bool) -> Option<f64> {
    let (top, bottom) = (ay.min(by), ay.max(by));
    let meets = if below { top <= y && y < bottom } else { top < y && y <= bottom };
    meets.then(|| f64::from(ax) + f64::from(y - ay) * f64::from(bx - ax) / f64::from(by - ay))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Colour = [200, 100, 50];

    fn filled(draw: impl FnOnce(&mut Canvas)) -> Vec<(i32, i32)> {
        let mut canvas = Canvas::from_fn(|_, _, _| 0);
        draw(&mut canvas);
        let is_ink = |x, y| index(x, y).is_some_and(|at| canvas.samples()[at] == INK[0]);
        (0..SIDE).flat_map(|y| (0..SIDE).map(move |x| (x, y))).filter(|&(x, y)| is_ink(x, y)).collect()
    }

    #[test]
    fn a_polygon_has_its_border() {
        let square = filled(|c| c.polygon(&[(2.0, 3.0), (5.9, 3.0), (5.0, 6.0), (2.0, 6.0)], INK));
        let wanted: Vec<_> = (3..=6).flat_map(|y| (2..=5).map(move |x| (x, y))).collect();
        assert_eq!(square, wanted);
        let triangle = filled(|c| c.polygon(&[(4.0, 0.0), (8.0, 4.0), (0.0, 4.0)], INK));
        assert_eq!(triangle.len(), 1 + 3 + 5 + 7 + 9);
        // a notch stays open
        let notched = filled(|c| c.polygon(&[(0.0, 0.0), (4.0, 4.0), (8.0, 0.0), (8.0, 8.0), (0.0, 8.0)], INK));
        assert!(!notched.contains(&(4, 2)) && notched.contains(&(4, 4)) && notched.contains(&(0, 0)));
    }

    #[test]
    fn nothing_is_drawn_outside() {
        let disc = filled(|c| c.disc(0.0, 223.0, 5.0, INK));
        assert!(disc.contains(&(0, 223)) && disc.len() < 40);
        let inside = filled(|c| c.disc(50.0, 50.0, 3.0, INK));
        assert!(inside.contains(&(47, 50)) && inside.contains(&(53, 50)) && !inside.contains(&(47, 47)));
    }

    #[test]
    fn coverage_mixes() {
        let mut canvas = Canvas::from_fn(|_, _, _| 10);
        canvas.blend(0, 0, INK, 255);
        canvas.blend(1, 0, INK, 0);
        canvas.blend(2, 0, INK, 128);
        assert_eq!(canvas.samples()[..9], [200, 100, 50, 10, 10, 10, 105, 55, 30]);
    }
}
