//! Tables of text, as Markdown or as CSV.

use std::fmt::Write;

/// What a cell says where there is nothing to say.
pub(crate) const ABSENT: &str = "-";

/// Cells and their headings; the first row is the headings.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[impl AsRef<str>]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| heading.as_ref().to_owned()).collect()] }
    }

    pub(crate) fn columns(&self) -> usize {
        self.rows[0].len()
    }

    pub(crate) fn push(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns(), "cells for headings");
        self.rows.push(cells);
    }

    /// With padded columns, so that it can be read as it is too.
    pub(crate) fn markdown(&self) -> String {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.columns()).map(width).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(out, "| {cell:width$} ");
            }
            out.push_str("|\n");
            if number == 0 {
                for width in &widths {
                    let _ = write!(out, "|{:-<1$}", "", width + 2);
                }
                out.push_str("|\n");
            }
        }
        out
    }

    pub(crate) fn csv(&self) -> String {
        let mut out = String::new();
        for row in &self.rows {
            let cells: Vec<String> = row.iter().map(|cell| quoted(cell)).collect();
            out.push_str(&cells.join(","));
            out.push('\n');
        }
        out
    }
}

/// Nanoseconds, as exact as they can be.
pub(crate) fn time(nanoseconds: f64) -> String {
    if nanoseconds < 100.0 { format!("{nanoseconds:.1}") } else { format!("{nanoseconds:.0}") }
}

/// 10,000,000 for 10000000.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!([0, 999, 1_000, 10_000_000].map(thousands), ["0", "999", "1,000", "10,000,000"]);
    }

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let mut table = Table::new(&["a", "b"]);
        table.push(vec!["1,000".into(), "\"so\"".into()]);
        assert_eq!(table.csv(), "a,b\n\"1,000\",\"\"\"so\"\"\"\n");
    }
}
