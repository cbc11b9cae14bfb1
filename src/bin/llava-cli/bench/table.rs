//! The result for people: aligned columns.

use super::Plain;
use super::figures::{Figure, Unit};
use super::rows::{Against, Row, Rows};
use super::stats::Stats;

/// Everything that goes to stdout.
pub fn text(rows: &Rows, figures: &[Figure], turns: usize) -> String {
    let mut out = String::new();
    if !rows.0.is_empty() {
        let rounds = rows.0.iter().map(|r| r.pairs.len()).max().unwrap_or(0);
        out.push_str(&format!(
            "Milliseconds to the first token: median (smallest to largest) of {rounds} rounds, both sides by turns.\n\
             plain: {}.\n\n",
            Plain::NAME
        ));
        out.push_str(&align(&scenario_lines(rows, turns)));
        let loads = load_lines(rows);
        if loads.len() > 1 {
            out.push_str("\nLoading, which is not in the times above:\n\n");
            out.push_str(&align(&loads));
        }
    }
    if !figures.is_empty() {
        out.push_str(if out.is_empty() { "" } else { "\n" });
        out.push_str(&align(&figure_lines(figures)));
    }
    out
}

fn scenario_lines(rows: &Rows, turns: usize) -> Vec<Vec<String>> {
    let head = [
        "scenario",
        "ours ms",
        "against",
        "ms",
        "times shorter",
        "to the end",
        "encoded",
        "visual prefilled",
        "answers equal",
    ];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in &rows.0 {
        let [ours, other] = row.first_token_ms().map(Stats::of);
        let encoded = row.most(|s| s.encoded);
        let visual = row.most(|s| s.visual_prefilled);
        lines.push(vec![
            about(row, turns),
            spread(ours, time),
            against(row.kind.against).into(),
            spread(other, time),
            spread(Stats::of(row.first_token_ratios()), times),
            spread(Stats::of(row.whole_ratios()), times),
            format!("{} : {}", encoded[0], encoded[1]),
            format!("{} : {}", visual[0], visual[1]),
            format!("{} of {}", row.equal(), row.pairs.len()),
        ]);
    }
    lines
}

fn about(row: &Row, turns: usize) -> String {
    row.kind.about.replace("all turns", &format!("{turns} turns"))
}

/// The word for the other side.
pub fn against(against: Against) -> &'static str {
    match against {
        Against::Plain => Plain::SHORT,
        Against::Off => "cache off",
    }
}

fn load_lines(rows: &Rows) -> Vec<Vec<String>> {
    let mut lines = vec![["scenario", "ours ms", "against", "ms"].map(str::to_owned).to_vec()];
    for row in &rows.0 {
        if let Some([ours, other]) = row.load_ms() {
            let other_name = against(row.kind.against).to_owned();
            lines.push(vec![row.kind.about.to_owned(), spread(ours, time), other_name, spread(other, time)]);
        }
    }
    lines
}

fn figure_lines(figures: &[Figure]) -> Vec<Vec<String>> {
    let mut lines = vec![["part", "value", "unit", "share of encoding"].map(str::to_owned).to_vec()];
    for figure in figures {
        let value = spread(figure.value(), if figure.unit == Unit::Ms { fine } else { times });
        let share = figure.share().map_or_else(String::new, |s| spread(s, percent));
        lines.push(vec![figure.about.to_owned(), value, figure.unit.name().to_owned(), share]);
    }
    lines
}

fn spread(stats: Stats, write: fn(f64) -> String) -> String {
    format!("{} ({} to {})", write(stats.median), write(stats.min), write(stats.max))
}

fn time(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.2}") } else { format!("{ms:.0}") }
}

fn fine(ms: f64) -> String {
    if ms < 10.0 { format!("{ms:.4}") } else { format!("{ms:.1}") }
}

fn times(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.1}") }
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

/// Lines of equally many cells, as wide as their widest one: the first column to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| lines.iter().filter_map(|l| l.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            text.push_str(&if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") });
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rows::{CHAT, COLD, COST_MEMORY, PROCESS_DISK};
    use super::super::sample::Sample;
    use super::*;

    fn sample(first_ms: u64, load: Option<u64>) -> Sample {
        let first_token = Duration::from_millis(first_ms);
        let load = load.map(Duration::from_millis);
        Sample { first_token, whole: first_token * 2, encoded: 1, visual_prefilled: 196, load, ..Sample::default() }
    }

    #[test]
    fn columns_are_aligned() {
        let lines = [["a", "long head"], ["longer", "1"]].map(|l| l.map(str::to_owned).to_vec());
        assert_eq!(align(&lines), "a       long head\nlonger          1\n");
        assert_eq!(align(&[]), "");
        // counted in characters
        let lines = [["é", "1"], ["ab", "2"]].map(|l| l.map(str::to_owned).to_vec());
        assert_eq!(align(&lines), "é   1\nab  2\n");
    }

    #[test]
    fn every_row_says_what_it_is_compared_with() {
        let mut rows = Rows::default();
        for _ in 0..2 {
            rows.push(COLD, sample(10, None), sample(20, None)).unwrap();
            rows.push(COST_MEMORY, sample(10, None), sample(10, None)).unwrap();
            rows.push(CHAT, sample(10, None), sample(10, None)).unwrap();
        }
        let text = text(&rows, &[], 3);
        let line = |words: &str| text.lines().find(|l| l.contains(words)).unwrap().to_owned();
        assert!(text.contains(Plain::NAME) && text.contains("2 rounds"), "{text}");
        let cold = line("first answer");
        assert!(cold.contains(Plain::SHORT) && cold.contains("2.000 (2.000 to 2.000)"), "{cold}");
        assert!(cold.contains("1 : 1") && cold.contains("196 : 196") && cold.ends_with("2 of 2"), "{cold}");
        assert!(line("the same").contains("cache off") && line("whole chat").contains("3 turns"));
        assert!(!text.contains("Loading"));
    }

    #[test]
    fn loading_stands_apart() {
        let mut rows = Rows::default();
        rows.push(PROCESS_DISK, sample(1, Some(700)), sample(2, Some(800))).unwrap();
        let text = text(&rows, &[], 1);
        let (_, loads) = text.split_once("Loading").unwrap();
        assert!(loads.contains("700 (700 to 700)") && loads.contains("800 (800 to 800)"), "{text}");
    }

    #[test]
    fn parts_are_written_with_their_share() {
        let part =
            Figure { id: "x", about: "a part", unit: Unit::Ms, values: vec![0.5, 1.5], shares: vec![0.01, 0.03] };
        let text = text(&Rows::default(), &[part], 1);
        assert!(text.starts_with("part") && text.contains("1.0000 (0.5000 to 1.5000)"), "{text}");
        assert!(text.contains("2.000 % (1.000 % to 3.000 %)"), "{text}");
    }
}
