//! Plots of variants that differ in compressor and budget: a panel for all questions and one for each task, a line for each
//! compressor. The same drawing goes to SVG and to PNG.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::plots::{FONT, Failure, colour, failed};
use crate::bitmap::{Canvas, Surface};
use crate::eval::summary::{Cell, Row, Summary};

/// Width and height of a panel, height of the strip with the names of the lines.
const PANEL: (u32, u32) = (380, 260);
const STRIP: u32 = 26;
const ACROSS: usize = 3;

/// What is drawn over the number of visual tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    Accuracy,
    Prefill,
    FirstToken,
}

impl Figure {
    pub const ALL: [Self; 3] = [Self::Accuracy, Self::Prefill, Self::FirstToken];

    /// Of its files, without ending.
    pub fn file(self) -> &'static str {
        match self {
            Self::Accuracy => "budget-accuracy",
            Self::Prefill => "budget-prefill",
            Self::FirstToken => "budget-first-token",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Accuracy => "Right answers by visual tokens",
            Self::Prefill => "Prefill by visual tokens",
            Self::FirstToken => "Time to the first token by visual tokens",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Accuracy => "right, %",
            Self::Prefill => "prefill, ms",
            Self::FirstToken => "first token, ms",
        }
    }

    /// The value, and its interval where there is one.
    fn value(self, cell: &Cell) -> (f64, Option<(f64, f64)>) {
        match self {
            Self::Accuracy => (cell.share.value * 100.0, Some((cell.share.low * 100.0, cell.share.high * 100.0))),
            Self::Prefill => (cell.prefill_ms, None),
            Self::FirstToken => (cell.ttft_ms, None),
        }
    }

    pub fn svg(self, summary: &Summary) -> Result<String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, size(summary)).into_drawing_area();
            draw(&area, self, summary).map_err(failed)?;
        }
        Ok(svg)
    }

    pub fn png(self, summary: &Summary) -> Result<Vec<u8>> {
        let (width, height) = size(summary);
        let mut canvas = Canvas::new(i32::try_from(width)?, i32::try_from(height)?, [255; 3]);
        {
            let area = Surface(&mut canvas).into_drawing_area();
            draw(&area, self, summary).map_err(failed)?;
        }
        Ok(canvas.into_image()?.to_png()?)
    }
}

/// Whether there is anything to draw.
pub fn is_sweep(summary: &Summary) -> bool {
    summary.rows.iter().any(|row| row.compressor.is_some())
}

/// Rows of each compressor, in the order in which they come up.
fn lines(summary: &Summary) -> Vec<(&str, Vec<&Row>)> {
    let mut lines: Vec<(&str, Vec<&Row>)> = Vec::new();
    for row in &summary.rows {
        let Some(name) = row.compressor.as_deref() else { continue };
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => lines.push((name, vec![row])),
        }
    }
    lines
}

/// One panel for one task is one for all questions.
fn panels(summary: &Summary) -> Vec<(&str, Option<usize>)> {
    let tasks = summary.tasks.iter().enumerate().map(|(i, name)| (name.as_str(), Some(i)));
    if summary.tasks.len() == 1 { tasks.collect() } else { std::iter::once(("all", None)).chain(tasks).collect() }
}

fn grid(panels: usize) -> (usize, usize) {
    let across = panels.clamp(1, ACROSS);
    (across, panels.div_ceil(across).max(1))
}

fn size(summary: &Summary) -> (u32, u32) {
    let (across, down) = grid(panels(summary).len());
    let times = |n: usize, side: u32| u32::try_from(n).unwrap_or(1) * side;
    (times(across, PANEL.0), times(down, PANEL.1) + STRIP)
}

fn draw<B: DrawingBackend>(area: &DrawingArea<B, Shift>, figure: Figure, summary: &Summary) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let (strip, rest) = area.split_vertically(STRIP);
    name_lines(&strip, summary)?;
    let panels = panels(summary);
    let (across, down) = grid(panels.len());
    for (place, (name, task)) in rest.split_evenly((down, across)).iter().zip(panels) {
        panel(place, figure, summary, name, task)?;
    }
    Ok(area.present()?)
}

fn name_lines<B: DrawingBackend>(strip: &DrawingArea<B, Shift>, summary: &Summary) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let names = lines(summary).into_iter().enumerate().map(|(i, (name, _))| (name.to_owned(), colour(i)));
    // what the others are compared with is drawn across
    let first = summary.rows.first().map(|row| (row.variant.clone(), BLACK));
    let mut x = 12;
    for (name, ink) in names.chain(first) {
        strip.draw(&Rectangle::new([(x, 9), (x + 14, 15)], ink.filled()))?;
        strip.draw(&Text::new(name.clone(), (x + 20, 5), FONT))?;
        x += 40 + i32::try_from(name.chars().count())? * 8;
    }
    Ok(())
}

fn panel<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    figure: Figure,
    summary: &Summary,
    name: &str,
    task: Option<usize>,
) -> Result<(), Failure>
where
    B::ErrorType: 'static,
{
    let cell = |row: &'_ Row| task.and_then(|i| row.tasks.get(i)).unwrap_or(&row.all).clone();
    let cells: Vec<Cell> = summary.rows.iter().map(cell).filter(|cell| cell.n > 0).collect();
    let most = |value: &dyn Fn(&Cell) -> f64| cells.iter().map(value).fold(0.0, f64::max);
    let right = most(&|cell| cell.visual_tokens).max(1.0) * 1.05;
    let top = if figure == Figure::Accuracy { 100.0 } else { most(&|cell| figure.value(cell).0).max(1e-3) * 1.1 };
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .caption(name, FONT)
        .x_label_area_size(42)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .max_light_lines(0)
        .x_labels(6)
        .y_labels(6)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if top < 5.0 { format!("{y:.1}") } else { format!("{y:.0}") })
        .x_desc("visual tokens")
        .y_desc(figure.unit())
        .label_style(FONT)
        .draw()?;
    if let Some(first) = summary.rows.first().map(cell).filter(|cell| cell.n > 0) {
        let (value, _) = figure.value(&first);
        chart.draw_series([PathElement::new([(0.0, value), (right, value)], BLACK.mix(0.5).stroke_width(1))])?;
        chart.draw_series([Circle::new((first.visual_tokens, value), 3, BLACK.filled())])?;
    }
    for (i, (_, rows)) in lines(summary).into_iter().enumerate() {
        let mut points: Vec<Cell> = rows.into_iter().map(cell).filter(|cell| cell.n > 0).collect();
        points.sort_by(|a, b| a.visual_tokens.total_cmp(&b.visual_tokens));
        let at = |cell: &Cell| (cell.visual_tokens, figure.value(cell).0);
        chart.draw_series([PathElement::new(points.iter().map(at).collect::<Vec<_>>(), colour(i).stroke_width(2))])?;
        chart.draw_series(points.iter().filter_map(|cell| {
            let (low, high) = figure.value(cell).1?;
            let x = cell.visual_tokens;
            Some(PathElement::new([(x, low), (x, high)], colour(i).mix(0.5).stroke_width(1)))
        }))?;
        chart.draw_series(points.iter().map(|cell| Circle::new(at(cell), 3, colour(i).filled())))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::summary::tests::cell;

    fn summary() -> Summary {
        let row = |variant: &str, compressor: Option<&str>, tokens: f64, right: usize| {
            let cell =
                Cell { visual_tokens: tokens, prefill_ms: tokens / 10.0, ttft_ms: tokens / 5.0, ..cell(right, 100) };
            Row {
                variant: variant.into(),
                compressor: compressor.map(str::to_owned),
                tasks: vec![cell.clone(), Cell { n: 0, ..cell.clone() }],
                all: cell,
            }
        };
        Summary {
            tasks: vec!["attr".into(), "ocr".into()],
            rows: vec![
                row("full", None, 196.0, 90),
                row("div-c 98", Some("div-c"), 98.0, 85),
                row("pool 98", Some("pool"), 98.0, 70),
                row("div-c 32", Some("div-c"), 32.0, 60),
            ],
        }
    }

    #[test]
    fn a_line_for_each_compressor_and_a_panel_for_each_task() {
        let summary = summary();
        let names: Vec<(&str, usize)> = lines(&summary).iter().map(|(name, rows)| (*name, rows.len())).collect();
        assert_eq!(names, [("div-c", 2), ("pool", 1)]);
        for figure in Figure::ALL {
            let svg = figure.svg(&summary).unwrap();
            for word in ["div-c", "pool", "full", "attr", "ocr", "all", "visual tokens", figure.unit()] {
                assert!(svg.contains(word), "{word} in {figure:?}");
            }
            // points of two panels: the third has no answers
            assert_eq!(svg.matches("<circle").count(), 2 * 4, "{figure:?}");
            assert!(!svg.contains("NaN"));
        }
    }

    #[test]
    fn the_png_shows_what_the_svg_shows() {
        let summary = summary();
        let png = Figure::Accuracy.png(&summary).unwrap();
        let image = llava::image::decode(&png, "plot", &llava::image::DecodeOptions::default()).unwrap().image;
        assert_eq!((image.width_px(), image.height_px()), size(&summary));
        let count = |ink: RGBColor| image.pixels().chunks_exact(3).filter(|p| **p == [ink.0, ink.1, ink.2]).count();
        // a thick line between two points, and a lone point
        assert!(count(colour(0)) > 150 && count(colour(1)) > 20, "{} {}", count(colour(0)), count(colour(1)));
        assert!(count(WHITE) > image.pixels().len() / 3 / 2);
    }

    #[test]
    fn without_a_sweep_there_is_nothing_to_draw() {
        let mut summary = summary();
        assert!(is_sweep(&summary));
        summary.rows.truncate(1);
        assert!(!is_sweep(&summary));
    }
}
