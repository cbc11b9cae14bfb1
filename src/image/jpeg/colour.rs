//! From component planes to RGB.

use super::super::composite::{Frame, Layout};
use super::frame::JpegFrame;
use super::segments::Tables;
use super::upsample;

/// What the components mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    Grey,
    Rgb,
    YCbCr,
    /// Inks stored inverted (255 is no ink), as every program in use writes them.
    Cmyk,
    /// The same after a YCbCr transform of the first three.
    Ycck,
}

impl Space {
    fn of(frame: &JpegFrame, tables: &Tables) -> Self {
        let ids: Vec<u8> = frame.components.iter().map(|component| component.id).collect();
        match (ids.len(), tables.adobe_transform) {
            (1, _) => Self::Grey,
            (3, _) if ids == *b"RGB" => Self::Rgb,
            (3, Some(0)) if !tables.jfif => Self::Rgb,
            (3, _) => Self::YCbCr,
            (_, None | Some(0)) => Self::Cmyk,
            (_, Some(_)) => Self::Ycck,
        }
    }
}

/// All rows, upsampled and converted.
pub(super) fn render(frame: &JpegFrame, tables: &Tables) -> Frame {
    let space = Space::of(frame, tables);
    let (width, height) = (frame.width, frame.height);
    let (width_px, height_px) = (width as u32, height as u32);
    // Wide enough for the largest sampling factor, 4, to write whole groups.
    let mut lines = vec![vec![0u8; width + 4]; frame.components.len()];
    let channels = if space == Space::Grey { 1 } else { 3 };
    let mut samples = Vec::with_capacity(width * height * channels);
    for row in 0..height {
        for (component, line) in frame.components.iter().zip(&mut lines) {
            upsample::line(frame, component, row, line);
        }
        match (space, lines.as_slice()) {
            (Space::Rgb, [r, g, b]) => {
                samples.extend(r[..width].iter().zip(g).zip(b).flat_map(|((&r, &g), &b)| [r, g, b]));
            }
            (Space::YCbCr, [y, cb, cr]) => {
                samples.extend(y[..width].iter().zip(cb).zip(cr).flat_map(|((&y, &cb), &cr)| ycbcr_to_rgb(y, cb, cr)));
            }
            (Space::Cmyk, [c, m, y, k]) => samples.extend(
                c[..width]
                    .iter()
                    .zip(m)
                    .zip(y)
                    .zip(k)
                    .flat_map(|(((&c, &m), &y), &k)| [c, m, y].map(|ink| under(ink, k))),
            ),
            (Space::Ycck, [y, cb, cr, k]) => {
                samples.extend(
                    y[..width]
                        .iter()
                        .zip(cb)
                        .zip(cr)
                        .zip(k)
                        .flat_map(|(((&y, &cb), &cr), &k)| ycbcr_to_rgb(y, cb, cr).map(|ink| under(255 - ink, k))),
                );
            }
            (_, lines) => samples.extend_from_slice(&lines[0][..width]),
        }
    }
    let layout = if space == Space::Grey { Layout::Grey } else { Layout::Rgb };
    Frame::new(width_px, height_px, layout, samples)
}

/// A light of `ink` (255 is full light) seen through black ink `k` (255 is none): their product, rounded.
fn under(ink: u8, k: u8) -> u8 {
    let product = u32::from(ink) * u32::from(k) + 128;
    ((product + (product >> 8)) >> 8) as u8
}

/// Full-range BT.601 as JFIF has it, with upstream's coefficients of 12 bits and its cut of the Cb term of green.
#[inline]
pub(in super::super) fn ycbcr_to_rgb(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    const fn fixed(value: f32) -> i32 {
        ((value * 4096.0 + 0.5) as i32) << 8
    }
    let luma = (i32::from(y) << 20) + (1 << 19);
    let (cb, cr) = (i32::from(cb) - 128, i32::from(cr) - 128);
    let red = luma + cr * fixed(1.402);
    let green = luma - cr * fixed(0.714_14) + ((cb * -fixed(0.344_14)) & !0xFFFF);
    let blue = luma + cb * fixed(1.772);
    [red, green, blue].map(|value| (value >> 20).clamp(0, 255) as u8)
}
