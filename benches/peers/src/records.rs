//! Reads back the CSV of a run, for the chart.

use std::io;
use std::path::Path;

use csv::{ErrorKind, ReaderBuilder, StringRecord};

use crate::cells::ABSENT;

/// What the lines before the headings begin with.
const COMMENT: char = '#';

pub(crate) struct Run {
    /// The machine, the versions, how much was measured: whatever stands before the headings.
    pub(crate) notes: Vec<String>,
    pub(crate) records: Vec<Record>,
}

/// A contestant in a shape.
#[derive(Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) shape: String,
    pub(crate) title: String,
    pub(crate) contestant: String,
    /// How much longer than perkey it takes, if it takes part.
    pub(crate) ratio: Option<f64>,
    /// What that ratio should be at least.
    pub(crate) goal: Option<f64>,
}

/// Lines that go before the headings.
pub(crate) fn comments(notes: &str) -> String {
    notes.lines().map(|note| format!("{COMMENT} {note}\n")).collect()
}

/// The run in `text`, which came from `file`.
pub(crate) fn parse(file: &Path, text: &[u8]) -> io::Result<Run> {
    let mut reader = ReaderBuilder::new().comment(Some(COMMENT as u8)).from_reader(text);
    let headings = reader.headers().map_err(|error| broken(file, &error))?.clone();
    // The reader counts the comments as the beginning of what follows them.
    let notes = notes(text);
    let heading_line = notes.len() as u64 + 1;
    let column = |name: &str| {
        let found = headings.iter().position(|heading| heading == name);
        found.ok_or_else(|| at(file, heading_line, &format!("there is no column {name:?}")))
    };
    let [shape, title, contestant] = [column("shape")?, column("title")?, column("contestant")?];
    let [ratio, goal] = [column("ratio_to_perkey")?, column("goal_ratio")?];

    let mut records = vec![];
    for cells in reader.records() {
        let cells = cells.map_err(|error| broken(file, &error))?;
        let number = |column: usize| number(&cells[column]).map_err(|problem| at(file, line(&cells), &problem));
        records.push(Record {
            shape: cells[shape].to_owned(),
            title: cells[title].to_owned(),
            contestant: cells[contestant].to_owned(),
            ratio: number(ratio)?,
            goal: number(goal)?,
        });
    }
    if records.is_empty() {
        return Err(at(file, heading_line, "there is nothing after the headings"));
    }
    Ok(Run { notes, records })
}

fn notes(text: &[u8]) -> Vec<String> {
    let lines = text.split(|&byte| byte == b'\n').map_while(|line| line.strip_prefix(&[COMMENT as u8]));
    lines.map(|note| String::from_utf8_lossy(note).trim().to_owned()).collect()
}

fn number(cell: &str) -> Result<Option<f64>, String> {
    if cell == ABSENT {
        return Ok(None);
    }
    let number = cell.parse().ok().filter(|number: &f64| number.is_finite());
    number.map(Some).ok_or_else(|| format!("{cell:?} is not a number"))
}

fn line(cells: &StringRecord) -> u64 {
    cells.position().map_or(1, csv::Position::line)
}

fn broken(file: &Path, error: &csv::Error) -> io::Error {
    let line = error.position().map_or(1, csv::Position::line);
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            at(file, line, &format!("{len} cells for {expected_len} headings"))
        }
        ErrorKind::Utf8 { .. } => at(file, line, "this is not UTF-8"),
        _ => at(file, line, &error.to_string()),
    }
}

fn at(file: &Path, line: u64, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}:{line}: {problem}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADINGS: &str = "shape,title,contestant,ratio_to_perkey,goal_ratio";

    fn parsed(text: &str) -> Result<Run, String> {
        parse(Path::new("run.csv"), text.as_bytes()).map_err(|error| error.to_string())
    }

    fn refused(text: &str) -> String {
        parsed(text).err().expect("a broken file")
    }

    #[test]
    fn notes_and_quoted_cells_are_read() {
        let text = format!("# two cores\n# nine rounds\n{HEADINGS}\nmany,\"2 threads, 10 keys\",lockmap,1.5,-\n");
        let run = parsed(&text).unwrap();
        assert_eq!(run.notes, ["two cores", "nine rounds"]);
        let record = Record {
            shape: "many".into(),
            title: "2 threads, 10 keys".into(),
            contestant: "lockmap".into(),
            ratio: Some(1.5),
            goal: None,
        };
        assert_eq!(run.records, [record]);
    }

    #[test]
    fn a_broken_file_is_refused_with_its_name_and_line() {
        assert_eq!(refused(""), "run.csv:1: there is no column \"shape\"");
        assert_eq!(refused("# note\nshape,title\n"), "run.csv:2: there is no column \"contestant\"");
        assert_eq!(refused(&format!("{HEADINGS}\n")), "run.csv:1: there is nothing after the headings");
        let after_one = |line: &str| refused(&format!("# note\n{HEADINGS}\na,A,lockmap,1.5,-\n{line}\n"));
        assert_eq!(after_one("a,A,lockable"), "run.csv:4: 3 cells for 5 headings");
        assert_eq!(after_one("a,A,lockable,fast,-"), "run.csv:4: \"fast\" is not a number");
        assert_eq!(after_one("a,A,lockable,1.5,NaN"), "run.csv:4: \"NaN\" is not a number");
        let error = parse(Path::new("run.csv"), b"shape,title,contestant,ratio_to_perkey,goal_ratio\n\xff,A,b,1,1\n");
        assert_eq!(error.err().unwrap().to_string(), "run.csv:2: this is not UTF-8");
    }
}
