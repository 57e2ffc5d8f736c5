//! Figures as a person reads them.

use std::fmt::Write;

use crate::figures::{Figures, Latency};
use crate::plan::Mix;

/// One run: a headline, and a line for each step.
pub(crate) fn of_run(figures: &Figures) -> String {
    let mut text = String::new();
    let loop_kind = match figures.rate {
        Some(rate) => format!("open loop at {rate}/s, latency from when due"),
        None => "closed loop".to_owned(),
    };
    let _ = writeln!(
        text,
        "{}: {} connections × {} in flight, {}-byte bodies, {} tubes, {} s after {} s warm-up, {loop_kind}",
        figures.targets.join(" "),
        figures.connections,
        figures.depth,
        figures.body_bytes,
        figures.tubes,
        figures.seconds,
        figures.warm_up_seconds,
    );
    let rows = figures.latency.iter().map(|(step, latency)| {
        let mut row = vec![(*step).to_owned(), latency.count.to_string()];
        row.extend(latency_cells(latency));
        row
    });
    text += &grid(
        &["step", "count", "mean", "p50", "p90", "p99", "p99.9", "max"],
        rows,
    );
    let _ = writeln!(
        text,
        "{:.0} operations/s, {} failed; {}",
        figures.per_second,
        figures.failed,
        cpu(figures)
    );
    text
}

/// Who used how much CPU, and what else the machine did.
pub(crate) fn cpu(figures: &Figures) -> String {
    let threads: Vec<_> = figures
        .own_cpu_by_thread
        .iter()
        .map(|share| format!("{:.0} %", share * 100.0))
        .collect();
    let server = match figures.server_cpu_cores {
        Some(cores) => format!(", server {cores:.2} cores"),
        None => String::new(),
    };
    format!(
        "benchmark's threads {} of a core{server}; load average {:.2}",
        threads.join(", "),
        figures.load_average
    )
}

/// The step whose latency stands for the whole operation.
pub(crate) fn main_latency(figures: &Figures) -> Option<&Latency> {
    let step = match figures.mix {
        Mix::Put => "put",
        Mix::Cycle => "cycle",
        Mix::Delivery => "delivery",
    };
    figures.latency.get(step)
}

fn latency_cells(latency: &Latency) -> [String; 6] {
    [
        latency.mean_us,
        latency.p50_us,
        latency.p90_us,
        latency.p99_us,
        latency.p999_us,
        latency.max_us,
    ]
    .map(duration)
}

/// Microseconds, in a unit in which they are easily read.
pub(crate) fn duration(micros: f64) -> String {
    if micros < 1_000.0 {
        format!("{micros:.0} µs")
    } else if micros < 1_000_000.0 {
        format!("{:.2} ms", micros / 1e3)
    } else {
        format!("{:.2} s", micros / 1e6)
    }
}

/// A Markdown table whose columns line up in a terminal as well.
pub(crate) fn grid(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.collect();
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain([head[column].chars().count(), 3])
            .max()
            .unwrap_or(3)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut text = String::from("|");
        for (column, width) in widths.iter().enumerate() {
            let cell = cells.get(column).map_or("", String::as_str);
            // The first column is a name, the others are figures.
            let _ = if column == 0 {
                write!(text, " {cell:<width$} |")
            } else {
                write!(text, " {cell:>width$} |")
            };
        }
        text + "\n"
    };
    let head: Vec<String> = head.iter().map(|word| (*word).to_owned()).collect();
    let mut text = line(&head);
    text.push('|');
    for (column, width) in widths.iter().enumerate() {
        let dashes = "-".repeat(width - 1);
        let _ = if column == 0 {
            write!(text, " {dashes}- |")
        } else {
            write!(text, " {dashes}: |")
        };
    }
    text.push('\n');
    for row in &rows {
        text += &line(row);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["put".to_owned(), "12 µs".to_owned()],
            vec!["delivery".to_owned(), "1.50 ms".to_owned()],
        ];
        let expected = "\
| step     |    mean |
| -------- | ------: |
| put      |   12 µs |
| delivery | 1.50 ms |
";
        assert_eq!(grid(&["step", "mean"], rows.into_iter()), expected);
    }
}
