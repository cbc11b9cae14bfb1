//! A canvas as `plotters` draws on it.

use std::convert::Infallible;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind};

use super::canvas::Canvas;
use super::letters::{self, HEIGHT, WIDTH};

/// All text has the one size there is.
#[derive(Debug)]
pub struct Surface<'a>(pub &'a mut Canvas);

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

fn size_of(text: &str) -> (i32, i32) {
    (i32::try_from(text.chars().count()).unwrap_or(0) * WIDTH, HEIGHT)
}

impl DrawingBackend for Surface<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        let side = |n: i32| u32::try_from(n).unwrap_or(0);
        (side(self.0.width()), side(self.0.height()))
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, colour: BackendColor) -> Drawn {
        let (red, green, blue) = colour.rgb;
        self.0.blend(x, y, [red, green, blue], colour.alpha);
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        let points: Vec<BackendCoord> = path.into_iter().collect();
        // a thick line is as many thin ones: corners need no mitres at this size
        let colour = style.color();
        let (red, green, blue) = colour.rgb;
        let reach = i32::try_from(style.stroke_width()).unwrap_or(1).max(1);
        for pair in points.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let flat = (to.0 - from.0).abs() >= (to.1 - from.1).abs();
            for step in 0..reach {
                let shift = step - reach / 2;
                let moved = |p: BackendCoord| if flat { (p.0, p.1 + shift) } else { (p.0 + shift, p.1) };
                self.0.line(moved(from), moved(to), [red, green, blue], colour.alpha);
            }
        }
        Ok(())
    }

    fn draw_text<T: BackendTextStyle>(&mut self, text: &str, style: &T, place: BackendCoord) -> Drawn {
        let (width, height) = size_of(text);
        let anchor = style.anchor();
        let dx = match anchor.h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let dy = match anchor.v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        let colour = style.color();
        let (red, green, blue) = colour.rgb;
        let turn = style.transform();
        letters::each(text, |x, y, coverage| {
            let (x, y) = turn.transform(x + dx, y + dy);
            self.0.blend(place.0 + x, place.1 + y, [red, green, blue], colour.alpha * coverage);
        });
        Ok(())
    }

    fn estimate_text_size<T: BackendTextStyle>(
        &self,
        text: &str,
        _: &T,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        let (width, height) = size_of(text);
        Ok((u32::try_from(width).unwrap_or(0), u32::try_from(height).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::canvas::Colour;
    use super::*;
    use plotters::prelude::*;

    #[test]
    fn shapes_and_turned_text_reach_the_canvas() {
        let mut canvas = Canvas::new(120, 80, [255; 3]);
        {
            let area = Surface(&mut canvas).into_drawing_area();
            area.draw(&Circle::new((100, 20), 6, RED.filled())).unwrap();
            area.draw(&PathElement::new([(5, 70), (60, 70)], ShapeStyle::from(&BLUE).stroke_width(3))).unwrap();
            let style = ("sans-serif", 12).into_font().transform(FontTransform::Rotate270).color(&BLACK);
            area.draw(&Text::new("HHHH", (10, 60), style)).unwrap();
            area.present().unwrap();
        }
        let image = canvas.into_image().unwrap();
        let count = |colour: Colour, x: std::ops::Range<u32>, y: std::ops::Range<u32>| {
            y.flat_map(|y| x.clone().map(move |x| (x, y))).filter(|&(x, y)| image.pixel(x, y) == Some(colour)).count()
        };
        assert_eq!(image.pixel(100, 20), Some([255, 0, 0]));
        assert_eq!(count([0, 0, 255], 0..120, 0..80), 3 * 56);
        // four letters upwards, and nothing to the right of them
        let dark = |x: std::ops::Range<u32>, y: std::ops::Range<u32>| {
            y.flat_map(|y| x.clone().map(move |x| (x, y)))
                .filter(|&(x, y)| image.pixel(x, y).is_some_and(|p| p[0] < 128 && p[2] < 128))
                .count()
        };
        assert!(dark(8..26, 30..61) > 30 && dark(27..90, 0..66) == 0);
    }
}
