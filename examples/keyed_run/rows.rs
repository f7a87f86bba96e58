//! Lines `key<TAB>command`.

use std::fmt::{self, Write};
use std::io::{self, BufRead};

/// One line of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    /// Its number in the input, from 1.
    pub(crate) line: usize,
    pub(crate) key: String,
    pub(crate) command: String,
}

/// The line, made safe for a terminal: control characters other than the tab are escaped.
impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t", self.key)?;
        self.command.chars().try_for_each(|char| match char {
            char if char.is_control() && char != '\t' => write!(f, "{}", char.escape_default()),
            char => f.write_char(char),
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{fault}: {}", shown(&String::from_utf8_lossy(text)))]
    BadRow { line: usize, text: Vec<u8>, fault: Fault },
}

/// What is wrong with a row.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("not UTF-8 text")]
    NotText,
    #[error("expected key<TAB>command, and there is no tab")]
    NoTab,
    #[error("the key is empty")]
    EmptyKey,
    #[error("the key has a control character in it")]
    ControlCharacter,
    #[error("the command is empty")]
    EmptyCommand,
    #[error("the command has a NUL character in it")]
    Nul,
}

/// Reads all rows. Lines are counted from 1, and every line of the input counts, so that an editor finds them.
pub(crate) fn read(mut input: impl BufRead) -> Result<Vec<Job>, ReadError> {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let mut jobs = Vec::new();
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        if input.read_until(b'\n', &mut text)? == 0 {
            break;
        }
        let row = text.strip_suffix(b"\n").unwrap_or(&text);
        let row = row.strip_suffix(b"\r").unwrap_or(row);
        let row = row.strip_prefix(BYTE_ORDER_MARK).filter(|_| line == 1).unwrap_or(row);
        if row.trim_ascii().is_empty() || row.starts_with(b"#") {
            continue;
        }
        match parse(row) {
            Ok((key, command)) => jobs.push(Job { line, key: key.to_owned(), command: command.to_owned() }),
            Err(fault) => return Err(ReadError::BadRow { line, text: row.to_owned(), fault }),
        }
    }
    Ok(jobs)
}

/// Splits a row at its first tab.
fn parse(row: &[u8]) -> Result<(&str, &str), Fault> {
    let row = str::from_utf8(row).map_err(|_| Fault::NotText)?;
    let (key, command) = row.split_once('\t').ok_or(Fault::NoTab)?;
    // A blank too much must not make another key of it, which is limited by itself.
    let key = key.trim();
    if key.is_empty() {
        return Err(Fault::EmptyKey);
    }
    // It would reach the terminal of whoever uses `--tag`.
    if key.contains(char::is_control) {
        return Err(Fault::ControlCharacter);
    }
    if command.trim().is_empty() {
        return Err(Fault::EmptyCommand);
    }
    // No program can be given one in an argument.
    if command.contains('\0') {
        return Err(Fault::Nul);
    }
    Ok((key, command))
}

/// `text`, made safe for a terminal and cut to a sensible length.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(line: usize, key: &str, command: &str) -> Job {
        Job { line, key: key.to_owned(), command: command.to_owned() }
    }

    fn fault(input: &[u8]) -> (usize, Fault) {
        match read(input) {
            Err(ReadError::BadRow { line, fault, .. }) => (line, fault),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn comments_and_blank_lines_are_skipped_and_counted() {
        let rows = [job(3, "a", "echo 1"), job(5, "b c", "echo\t2 # two ")];
        for input in [
            "# comment\n\na\techo 1\n \t \nb c\techo\t2 # two \n",
            "\u{feff}# comment\r\n\r\na\techo 1\r\n \t \r\n b c \techo\t2 # two \r\n",
            "#\n\na\techo 1\n\nb c\techo\t2 # two ",
        ] {
            assert_eq!(read(input.as_bytes()).unwrap(), rows, "{input:?}");
        }
        assert_eq!(read(&b""[..]).unwrap(), []);
        assert_eq!(read("\u{feff}k\tc".as_bytes()).unwrap(), [job(1, "k", "c")]);
    }

    #[test]
    fn a_key_may_have_any_character_that_is_not_a_control_character() {
        for key in ["a#b", "=", "häuser 3", "'\"$(rm)\\", "日本", "-"] {
            assert_eq!(read(format!("{key}\ttrue").as_bytes()).unwrap(), [job(1, key, "true")]);
        }
    }

    #[test]
    fn every_fault_is_told_apart_and_named_by_its_line() {
        let cases: [(&[u8], Fault); 14] = [
            (b"a", Fault::NoTab),
            (b"a echo", Fault::NoTab),
            (b" # no comment", Fault::NoTab),
            (b"\techo", Fault::EmptyKey),
            (b" \techo", Fault::EmptyKey),
            ("\u{a0}\techo".as_bytes(), Fault::EmptyKey),
            (b"a\x1b[2J\techo", Fault::ControlCharacter),
            (b"a\rb\techo", Fault::ControlCharacter),
            ("a\u{85}b\techo".as_bytes(), Fault::ControlCharacter),
            (b"a\t", Fault::EmptyCommand),
            (b"a\t \t", Fault::EmptyCommand),
            (b"a\techo \0", Fault::Nul),
            (b"a\xff\techo", Fault::NotText),
            (b"a\techo \xc3", Fault::NotText),
        ];
        for (row, expected) in cases {
            for (before, end) in [("", ""), ("x\ty\n\n#\n\n", "\nbad, too\n"), ("x\ty\r\n\r\n#\r\n\r\n", "\r\n")] {
                let input = [before.as_bytes(), row, end.as_bytes()].concat();
                let line = if before.is_empty() { 1 } else { 5 };
                assert_eq!(fault(&input).0, line, "{:?}", String::from_utf8_lossy(&input));
                assert_eq!(fault(&input).1, expected, "{:?}", String::from_utf8_lossy(&input));
            }
        }
    }

    #[test]
    fn a_message_has_the_text_and_nothing_that_moves_a_cursor() {
        let message = |input: &[u8]| read(input).unwrap_err().to_string();
        assert_eq!(message(b"a b\r\n"), "expected key<TAB>command, and there is no tab: \"a b\"");
        assert_eq!(message(b"a\x1b[2J\xff\tb"), "not UTF-8 text: \"a\\u{1b}[2J\u{fffd}\\tb\"");
        let long = message(format!("a\t\0{}", "ä".repeat(1_000)).as_bytes());
        assert_eq!(long, format!("the command has a NUL character in it: \"a\\t\\0{}\"...", "ä".repeat(97)));
    }

    #[test]
    fn a_job_is_written_as_it_was_read_but_for_what_moves_a_cursor() {
        assert_eq!(job(1, "ä b", "printf '\\t'\t\"$x\" é").to_string(), "ä b\tprintf '\\t'\t\"$x\" é");
        assert_eq!(job(1, "a", "echo \x1b[2J\r").to_string(), "a\techo \\u{1b}[2J\\r");
    }
}
