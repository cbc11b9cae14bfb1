//! Bringing subsampled components up to the size of the picture.
//!
//! Factors 1 and 2 use the "triangle" filter (three parts of the nearer sample, one part of the farther one), all other
//! factors repeat samples. Rounding and behaviour at the borders are upstream's, including one that looks like a slip:
//! see [`double_across`].

use super::frame::{Component, JpegFrame};

/// Writes row `row` of the picture's samples of `component` into `line`, which holds at least the frame's width rounded
/// up to the sampling factor.
pub(super) fn line(frame: &JpegFrame, component: &Component, row: usize, line: &mut [u8]) {
    let (across, down) = (frame.h_max / component.h, frame.v_max / component.v);
    let width = frame.width.div_ceil(across);
    let samples = |y: usize| &component.plane[y * component.stride()..][..width];
    let near = samples(row / down);
    match (across, down) {
        (1, 1) => line[..width].copy_from_slice(near),
        (1, 2) => double_down(near, samples(farther(row, component.height)), line),
        (2, 1) => double_across(near, line),
        (2, 2) => double_both(near, samples(farther(row, component.height)), line),
        _ => {
            for (out, &value) in line.chunks_mut(across).zip(near) {
                out.fill(value);
            }
        }
    }
}

/// The second nearest row of a component of half height; at the borders the nearest one again.
fn farther(row: usize, height: usize) -> usize {
    if row % 2 == 1 { (row / 2 + 1).min(height - 1) } else { (row / 2).saturating_sub(1) }
}

fn double_down(near: &[u8], far: &[u8], line: &mut [u8]) {
    for ((out, &near), &far) in line.iter_mut().zip(near).zip(far) {
        *out = ((3 * u16::from(near) + u16::from(far) + 2) >> 2) as u8;
    }
}

/// Doubles a row. The last but one sample weighs its two neighbours the other way round than all others do: that is
/// what upstream computes for every 4:2:2 picture, and equal pixels matter more here than a better last column.
fn double_across(near: &[u8], line: &mut [u8]) {
    let mix = |three: u8, one: u8| ((3 * u16::from(three) + u16::from(one) + 2) >> 2) as u8;
    let count = near.len();
    if count == 1 {
        line[..2].fill(near[0]);
        return;
    }
    line[0] = near[0];
    line[1] = mix(near[0], near[1]);
    for (triple, out) in near.windows(3).zip(line[2..].chunks_mut(2)) {
        out[0] = mix(triple[1], triple[0]);
        out[1] = mix(triple[1], triple[2]);
    }
    line[2 * count - 2] = mix(near[count - 2], near[count - 1]);
    line[2 * count - 1] = near[count - 1];
}

fn double_both(near: &[u8], far: &[u8], line: &mut [u8]) {
    let down = |i: usize| 3 * u16::from(near[i]) + u16::from(far[i]);
    let last = near.len() - 1;
    line[0] = ((down(0) + 2) >> 2) as u8;
    for i in 0..last {
        let (left, right) = (down(i), down(i + 1));
        line[2 * i + 1] = ((3 * left + right + 8) >> 4) as u8;
        line[2 * i + 2] = ((3 * right + left + 8) >> 4) as u8;
    }
    line[2 * last + 1] = ((down(last) + 2) >> 2) as u8;
}
