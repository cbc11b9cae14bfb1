//! The drawing: every tile with its grid, what is kept, and what stands for what.

use llava::compress::{Layout, VisualTokens};
use llava::image::RgbImage;

use super::look::{Cut, Seen, SeenTile, places};
use crate::bitmap::{Canvas, Colour, LETTER_HEIGHT, LETTER_WIDTH, Rect};

const GROUND: Colour = [250, 250, 250];
const TEXT: Colour = [30, 30, 30];
pub const KEPT: Colour = [0, 200, 83];
const STANDS_FOR: Colour = [255, 145, 0];
const LINES: Colour = [255, 255, 255];
const MARGIN: i32 = 10;
/// Longest side of a tile in the drawing: alone, and beside others.
const ALONE_PX: u32 = 896;
const BESIDE_PX: u32 = 448;
/// A cell is drawn no smaller.
const LEAST_CELL_PX: u32 = 8;

/// Where a tile lies in the drawing.
pub fn place(seen: &Seen, index: usize) -> Rect {
    let n = seen.tiles.len();
    let across = across(n);
    let sizes: Vec<(i32, i32)> = seen.tiles.iter().map(|tile| size(tile, n)).collect();
    let slot = (sizes.iter().map(|s| s.0).max().unwrap_or(0), sizes.iter().map(|s| s.1).max().unwrap_or(0));
    let (column, row) = (to_i32(index % across), to_i32(index / across));
    let (width, height) = sizes.get(index).copied().unwrap_or_default();
    Rect {
        x: MARGIN + column * (slot.0 + MARGIN),
        y: 2 * MARGIN + LETTER_HEIGHT + row * (slot.1 + LETTER_HEIGHT + 2 * MARGIN),
        width,
        height,
    }
}

/// Pixels of a cell.
pub fn cell(layout: &Layout, tile: Rect, cell: usize) -> Rect {
    let (column, row) = layout.place(cell);
    let edge = |i: usize, n: usize, size: i32| to_i32(i) * size / to_i32(n).max(1);
    let (x, y) = (edge(column, layout.columns(), tile.width), edge(row, layout.rows(), tile.height));
    Rect {
        x: tile.x + x,
        y: tile.y + y,
        width: edge(column + 1, layout.columns(), tile.width) - x,
        height: edge(row + 1, layout.rows(), tile.height) - y,
    }
}

/// Draws all tiles. `headline` stands above them.
pub fn draw(seen: &Seen, cut: Option<&Cut>, headline: &str) -> llava::Result<RgbImage> {
    let rects: Vec<Rect> = (0..seen.tiles.len()).map(|index| place(seen, index)).collect();
    let right = rects.iter().map(|r| r.x + r.width).max().unwrap_or(0);
    let bottom = rects.iter().map(|r| r.y + r.height).max().unwrap_or(0);
    let text = to_i32(headline.chars().count()) * LETTER_WIDTH + MARGIN;
    let mut canvas = Canvas::new(right.max(text) + MARGIN, bottom + LETTER_HEIGHT + 2 * MARGIN, GROUND);
    canvas.text((MARGIN, MARGIN), headline, TEXT);
    for (index, (tile, &rect)) in seen.tiles.iter().zip(&rects).enumerate() {
        canvas.picture(&tile.image, rect);
        let label = caption(seen, cut, index);
        canvas.text((rect.x, rect.y + rect.height + 3), &label, TEXT);
        if let Some(tokens) = cut.and_then(|cut| cut.tokens.get(index)) {
            mark(&mut canvas, tokens, rect);
        }
    }
    canvas.into_image()
}

fn mark(canvas: &mut Canvas, tokens: &VisualTokens, rect: Rect) {
    let layout = tokens.source();
    let places = places(tokens);
    // 0: nobody stands for it, 1: another cell does, 2: it is kept
    let mut fate = vec![0_u8; layout.cells()];
    for (anchor, members) in &places {
        for &member in *members {
            fate[member as usize] = fate[member as usize].max(1);
        }
        fate[*anchor] = 2;
    }
    for (index, fate) in fate.iter().enumerate() {
        let area = cell(layout, rect, index);
        match fate {
            0 => canvas.fill(area, [0; 3], 0.68),
            1 => canvas.fill(area, [0; 3], 0.4),
            _ => {}
        }
        canvas.fill(Rect { width: 1, ..area }, LINES, 0.25);
        canvas.fill(Rect { height: 1, ..area }, LINES, 0.25);
    }
    for (anchor, members) in &places {
        let to = cell(layout, rect, *anchor).middle();
        for &member in members.iter().filter(|&&m| m as usize != *anchor) {
            canvas.line(cell(layout, rect, member as usize).middle(), to, STANDS_FOR, 0.9);
        }
    }
    for (anchor, members) in &places {
        let area = cell(layout, rect, *anchor);
        canvas.frame(area.inset(1), (area.width / 12).clamp(1, 3), KEPT, 1.0);
        if members.len() > 1 {
            let (x, y) = area.middle();
            canvas.fill(Rect { x: x - 2, y: y - 2, width: 5, height: 5 }, STANDS_FOR, 1.0);
        }
    }
}

/// What stands below a tile.
fn caption(seen: &Seen, cut: Option<&Cut>, index: usize) -> String {
    let tile = &seen.tiles[index];
    let name = match (seen.tiles.len(), tile.overview) {
        (1, _) => String::new(),
        (_, true) => format!("{} whole picture: ", index + 1),
        (_, false) => format!("{}: ", index + 1),
    };
    let Some((tokens, energy)) = cut.and_then(|cut| Some((cut.tokens.get(index)?, cut.energy.get(index)?))) else {
        return format!("{name}{} rows, layout unknown", tile.rows.rows());
    };
    format!("{name}{} of {} cells, {:.1} %", tokens.cells(), tokens.source().cells(), f64::from(*energy) * 100.0)
}

fn across(tiles: usize) -> usize {
    (1..).find(|n| n * n >= tiles).unwrap_or(1)
}

/// Width and height of a tile in the drawing: a whole multiple of its own where it is small.
fn size(tile: &SeenTile, tiles: usize) -> (i32, i32) {
    let (width, height) = (tile.image.width_px(), tile.image.height_px());
    let most = if tiles == 1 { ALONE_PX } else { BESIDE_PX };
    let longest = width.max(height).max(1);
    let wanted = most.max(tile.grid.columns.max(tile.grid.rows).saturating_mul(LEAST_CELL_PX));
    if longest <= wanted {
        let times = wanted / longest;
        return (side(width * times), side(height * times));
    }
    let scaled = |n: u32| side(u32::try_from(u64::from(n) * u64::from(wanted) / u64::from(longest)).unwrap_or(1));
    (scaled(width), scaled(height))
}

fn side(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX).max(1)
}

fn to_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}
