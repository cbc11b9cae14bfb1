//! Pixels to draw on. What lies outside is not drawn.

use llava::image::RgbImage;

use super::letters;

pub type Colour = [u8; 3];

/// Whole pixels: columns from `x`, rows from `y`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rect {
    pub x: i32,
    pub y: i32,
    pub width: i32,
    pub height: i32,
}

impl Rect {
    /// The pixel in the middle.
    pub fn middle(self) -> (i32, i32) {
        (self.x + self.width / 2, self.y + self.height / 2)
    }

    /// Without `by` pixels on each side.
    pub fn inset(self, by: i32) -> Self {
        Self { x: self.x + by, y: self.y + by, width: self.width - 2 * by, height: self.height - 2 * by }
    }
}

/// RGB samples, row-major `[height, width, 3]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canvas {
    width: i32,
    height: i32,
    samples: Vec<u8>,
}

impl Canvas {
    pub fn new(width: i32, height: i32, ground: Colour) -> Self {
        let (width, height) = (width.max(1), height.max(1));
        let pixels = usize::try_from(i64::from(width) * i64::from(height)).unwrap_or(0);
        Self { width, height, samples: ground.repeat(pixels) }
    }

    pub fn width(&self) -> i32 {
        self.width
    }

    pub fn height(&self) -> i32 {
        self.height
    }

    pub fn into_image(self) -> llava::Result<RgbImage> {
        let side = |n: i32| u32::try_from(n).unwrap_or(0);
        RgbImage::from_rgb(side(self.width), side(self.height), self.samples)
    }

    /// Mixes a colour into a pixel; `alpha` 0 leaves it as it is, 1 replaces it.
    pub fn blend(&mut self, x: i32, y: i32, colour: Colour, alpha: f64) {
        if !(0..self.width).contains(&x) || !(0..self.height).contains(&y) {
            return;
        }
        let at = (i64::from(y) * i64::from(self.width) + i64::from(x)) * 3;
        let Some(samples) = usize::try_from(at).ok().and_then(|at| self.samples.get_mut(at..at + 3)) else { return };
        for (sample, ink) in samples.iter_mut().zip(colour) {
            let mixed = f64::from(ink) * alpha + f64::from(*sample) * (1.0 - alpha);
            *sample = mixed.round().clamp(0.0, 255.0) as u8;
        }
    }

    pub fn fill(&mut self, rect: Rect, colour: Colour, alpha: f64) {
        for y in rect.y..rect.y + rect.height {
            for x in rect.x..rect.x + rect.width {
                self.blend(x, y, colour, alpha);
            }
        }
    }

    /// The border of a rectangle, `thick` pixels to the inside.
    pub fn frame(&mut self, rect: Rect, thick: i32, colour: Colour, alpha: f64) {
        let Rect { x, y, width, height } = rect;
        let thick = thick.min(width / 2).min(height / 2).max(1);
        self.fill(Rect { height: thick, ..rect }, colour, alpha);
        self.fill(Rect { y: y + height - thick, height: thick, ..rect }, colour, alpha);
        let sides = Rect { y: y + thick, height: height - 2 * thick, width: thick, x };
        self.fill(sides, colour, alpha);
        self.fill(Rect { x: x + width - thick, ..sides }, colour, alpha);
    }

    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), colour: Colour, alpha: f64) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = dx.abs().max(dy.abs()).max(1);
        let at = |start: i32, way: i32, step: i32| {
            start + (f64::from(way) * f64::from(step) / f64::from(steps)).round() as i32
        };
        for step in 0..=steps {
            self.blend(at(from.0, dx, step), at(from.1, dy, step), colour, alpha);
        }
    }

    /// A picture, stretched over a rectangle. Pixels are repeated, not smoothed: cells keep their borders.
    pub fn picture(&mut self, image: &RgbImage, place: Rect) {
        let source = |i: i32, n: i32, size: u32| {
            let at = i64::from(i) * i64::from(size) / i64::from(n.max(1));
            u32::try_from(at).unwrap_or(0)
        };
        for y in 0..place.height {
            for x in 0..place.width {
                let (sx, sy) = (source(x, place.width, image.width_px()), source(y, place.height, image.height_px()));
                if let Some(colour) = image.pixel(sx, sy) {
                    self.blend(place.x + x, place.y + y, colour, 1.0);
                }
            }
        }
    }

    /// A line of text with its upper left corner at a point.
    pub fn text(&mut self, at: (i32, i32), text: &str, colour: Colour) {
        letters::each(text, |x, y, coverage| self.blend(at.0 + x, at.1 + y, colour, coverage));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INK: Colour = [200, 100, 50];

    fn inked(canvas: Canvas) -> Vec<(u32, u32)> {
        let image = canvas.into_image().unwrap();
        let all = (0..image.height_px()).flat_map(|y| (0..image.width_px()).map(move |x| (x, y)));
        all.filter(|&(x, y)| image.pixel(x, y) == Some(INK)).collect()
    }

    #[test]
    fn frames_lie_inside_and_nothing_outside() {
        let mut canvas = Canvas::new(9, 7, [0; 3]);
        canvas.frame(Rect { x: 2, y: 1, width: 4, height: 3 }, 1, INK, 1.0);
        let ring = [(2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (5, 2), (2, 3), (3, 3), (4, 3), (5, 3)];
        assert_eq!(inked(canvas), ring);
        let mut canvas = Canvas::new(4, 4, [0; 3]);
        canvas.fill(Rect { x: -5, y: 2, width: 7, height: 9 }, INK, 1.0);
        canvas.line((-3, 0), (9, 0), INK, 1.0);
        canvas.text((-20, -20), "abc", INK);
        assert_eq!(inked(canvas), [(0, 0), (1, 0), (2, 0), (3, 0), (0, 2), (1, 2), (0, 3), (1, 3)]);
    }

    #[test]
    fn pictures_are_stretched_pixel_by_pixel() {
        let image = RgbImage::from_rgb(2, 1, vec![200, 100, 50, 9, 9, 9]).unwrap();
        let mut canvas = Canvas::new(8, 4, [0; 3]);
        canvas.picture(&image, Rect { x: 1, y: 1, width: 4, height: 2 });
        assert_eq!(inked(canvas), [(1, 1), (2, 1), (1, 2), (2, 2)]);
    }

    #[test]
    fn alpha_mixes() {
        let mut canvas = Canvas::new(1, 1, [100; 3]);
        canvas.blend(0, 0, [200, 0, 100], 0.25);
        assert_eq!(canvas.into_image().unwrap().pixels(), [125, 75, 100]);
    }
}
