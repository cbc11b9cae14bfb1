//! The picture that is asked about.

use anyhow::Result;
use llava::image::RgbImage;
use llava::session::Picture;

use super::flags::BenchArgs;
use crate::exit::Problem;
use crate::pictures::{Reader, paths};

const WIDTH_PX: u32 = 640;
const HEIGHT_PX: u32 = 480;

/// The picture of the command line, or one that is drawn: always the same one, so that child processes show it too.
pub fn choose(args: &BenchArgs) -> Result<Picture> {
    match paths(&args.picture.image).as_slice() {
        [] => Ok(Picture::new(draw(WIDTH_PX, HEIGHT_PX)?)),
        [one] => Reader::new(&args.picture).pixels(one),
        many => Err(Problem::usage(format!("bench takes one picture, not {}", many.len())).into()),
    }
}

/// Slopes of colour with squares on them.
fn draw(width_px: u32, height_px: u32) -> llava::Result<RgbImage> {
    let mut pixels = Vec::with_capacity(width_px as usize * height_px as usize * 3);
    for y in 0..height_px {
        for x in 0..width_px {
            let square = if (x / 80 + y / 80) % 2 == 0 { 0 } else { 90 };
            for value in [x * 165 / width_px + square, y * 165 / height_px + square, 255 - square] {
                pixels.push(u8::try_from(value).unwrap_or(u8::MAX));
            }
        }
    }
    RgbImage::from_rgb(width_px, height_px, pixels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drawing_is_the_same_in_every_process() {
        let picture = Picture::new(draw(WIDTH_PX, HEIGHT_PX).unwrap());
        assert_eq!(picture, Picture::new(draw(WIDTH_PX, HEIGHT_PX).unwrap()));
        let pixels = picture.image().pixels();
        assert!(pixels.contains(&255) && pixels.contains(&0));
    }
}
