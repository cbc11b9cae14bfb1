//! Plots as SVG text.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::eval::summary::{Cell, Row, Summary};
use crate::exit::{FAILED, Problem};

const SIZE: (u32, u32) = (1000, 360);
pub const FONT: (&str, i32) = ("sans-serif", 14);
const PALETTE: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(127, 127, 127),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub fn colour(index: usize) -> RGBColor {
    PALETTE[index % PALETTE.len()]
}

/// Whatever goes wrong while drawing.
pub type Failure = Box<dyn std::error::Error>;

pub fn failed(error: Failure) -> Problem {
    Problem::new(FAILED, "failed", format!("cannot draw a plot: {error}"))
}

/// Draws onto a white area and returns the SVG.
fn plot(draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn std::error::Error>>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area)).and_then(|()| Ok(area.present()?));
        drawn.map_err(failed)?;
    }
    Ok(svg)
}

/// Bars of right answers with their intervals, a group for each task.
pub fn accuracy(summary: &Summary) -> Result<String> {
    let groups = summary.tasks.len();
    plot(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..groups as f64, 0.0..100.0)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .disable_x_axis()
            .y_desc("right, %")
            .label_style(FONT)
            .draw()?;
        let width = 0.8 / summary.rows.len() as f64;
        for (v, row) in summary.rows.iter().enumerate() {
            let bars = row.tasks.iter().enumerate().map(|(t, cell)| {
                let left = t as f64 + 0.1 + v as f64 * width;
                let height = if cell.n == 0 { 0.0 } else { cell.share.value * 100.0 };
                Rectangle::new([(left, 0.0), (left + width * 0.92, height)], colour(v).mix(0.75).filled())
            });
            let name = row.variant.clone();
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour(v).mix(0.75).filled()));
            chart.draw_series(row.tasks.iter().enumerate().map(|(t, cell)| {
                let x = t as f64 + 0.1 + (v as f64 + 0.46) * width;
                PathElement::new([(x, cell.share.low * 100.0), (x, cell.share.high * 100.0)], BLACK.stroke_width(2))
            }))?;
        }
        names_below(area, &chart_width(groups), &summary.tasks)?;
        legend(&mut chart, summary)
    })
}

/// Where the middle of each of `groups` equal parts of a chart lies, in pixels.
fn chart_width(groups: usize) -> Vec<i32> {
    // margin and label area of `accuracy` and `time`
    let (left, right) = (60.0, f64::from(SIZE.0) - 10.0);
    (0..groups).map(|i| (left + (right - left) * (i as f64 + 0.5) / groups as f64) as i32).collect()
}

fn names_below(area: &Area<'_>, places: &[i32], names: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    use plotters::style::text_anchor::{HPos, Pos, VPos};
    let style = FONT.into_text_style(area).pos(Pos::new(HPos::Center, VPos::Top));
    let y = i32::try_from(SIZE.1)? - 32;
    for (&x, name) in places.iter().zip(names) {
        area.draw(&Text::new(name.clone(), (x, y), style.clone()))?;
    }
    Ok(())
}

fn legend<'a, 'b: 'a>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    summary: &Summary,
) -> Result<(), Box<dyn std::error::Error>> {
    if summary.rows.len() > 1 {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .label_font(FONT)
            .draw()?;
    }
    Ok(())
}

fn parts(cell: &Cell) -> [(&'static str, f64); 3] {
    [("encode", cell.encode_ms), ("prefill", cell.prefill_ms), ("decode", cell.decode_ms)]
}

/// Median times of an answer's parts, a bar for each variant.
pub fn time(summary: &Summary) -> Result<String> {
    let most = summary.rows.iter().map(|row| parts(&row.all).iter().map(|p| p.1).sum::<f64>()).fold(0.0, f64::max);
    let n = summary.rows.len();
    plot(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..n as f64, 0.0..most.max(1e-3) * 1.1)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .disable_x_axis()
            .y_desc("ms")
            .label_style(FONT)
            .draw()?;
        for (p, (name, _)) in parts(&summary.rows[0].all).into_iter().enumerate() {
            let bars = summary.rows.iter().enumerate().map(|(v, row)| {
                let times = parts(&row.all);
                let below: f64 = times[..p].iter().map(|t| t.1).sum();
                let corners = [(v as f64 + 0.3, below), (v as f64 + 0.7, below + times[p].1)];
                Rectangle::new(corners, colour(p).mix(0.75).filled())
            });
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour(p).mix(0.75).filled()));
        }
        names_below(area, &chart_width(n), &summary.rows.iter().map(|r| r.variant.clone()).collect::<Vec<_>>())?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .label_font(FONT)
            .draw()?;
        Ok(())
    })
}

/// A point for each variant: the time to the first token, and right answers with their interval.
pub fn tradeoff(summary: &Summary) -> Result<String> {
    let x_of = |row: &Row| row.all.ttft_ms;
    let most = summary.rows.iter().map(x_of).fold(0.0, f64::max);
    plot(|area| {
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .x_label_area_size(40)
            .y_label_area_size(50)
            .build_cartesian_2d(0.0..most.max(1e-3) * 1.2, 0.0..100.0)?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .x_desc("time to the first token, ms")
            .y_desc("right, %")
            .label_style(FONT)
            .draw()?;
        for (v, row) in summary.rows.iter().enumerate() {
            let (x, share) = (x_of(row), row.all.share);
            let y = if row.all.n == 0 { 0.0 } else { share.value * 100.0 };
            chart.draw_series([PathElement::new(
                [(x, share.low * 100.0), (x, share.high * 100.0)],
                colour(v).stroke_width(2),
            )])?;
            chart.draw_series([Circle::new((x, y), 5, colour(v).filled())])?;
            let name = Text::new(row.variant.clone(), (10, -6), FONT);
            chart.draw_series([EmptyElement::at((x, y)) + name])?;
        }
        Ok(())
    })
}
