//! Transfers as rows of a CSV file.

use std::io::{self, BufRead, Write};

use csv_core::{ReadFieldResult, ReaderBuilder, Terminator};

const HEADING: [&str; 3] = ["from", "to", "amount"];

/// One row: move `amount` (from 1 up, in the smallest unit) from one account to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: i64,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{fault}: {}", shown(text))]
    BadRow { line: usize, text: Vec<u8>, fault: Fault },
}

/// What is wrong with a row.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error("not UTF-8 text")]
    NotText,
    #[error("expected 3 fields, from,to,amount")]
    FieldCount,
    #[error("a quote is opened and not closed")]
    OpenQuote,
    #[error("the account is empty")]
    EmptyAccount,
    #[error("the account has a control character in it")]
    ControlCharacter,
    #[error("the amount is not a whole number from 1 to {}", i64::MAX)]
    Amount,
    #[error("with this amount the sum of all amounts is more than {}", i64::MAX)]
    Total,
}

/// Reads all rows. Lines are counted from 1, and every line of the input counts, so that an editor finds them.
pub(crate) fn read(mut input: impl BufRead) -> Result<Vec<Transfer>, ReadError> {
    let mut transfers = Vec::new();
    let mut parser = Parser::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        match parser.row(&line, number == 1) {
            Ok(row) => transfers.extend(row),
            Err(fault) => return Err(ReadError::BadRow { line: number, text: line, fault }),
        }
    }
    Ok(transfers)
}

/// Writes the heading and all rows. Names that need quotes are not expected: those made up here never do.
pub(crate) fn write(transfers: &[Transfer], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", HEADING.join(","))?;
    transfers.iter().try_for_each(|Transfer { from, to, amount }| writeln!(out, "{from},{to},{amount}"))
}

/// Takes one line at a time. By `csv-core` and not `csv`, whose line numbers are off after blank lines and after CRLF.
struct Parser {
    csv: csv_core::Reader,
    field: Vec<u8>,
    total: i64,
}

impl Parser {
    fn new() -> Self {
        // Only what ended the line ends the row: a lone CR must not hide the rest of a line.
        let csv = ReaderBuilder::new().terminator(Terminator::Any(b'\n')).build();
        Self { csv, field: Vec::new(), total: 0 }
    }

    /// The transfer of this line; `None` for a blank line and for the heading.
    fn row(&mut self, line: &[u8], is_first: bool) -> Result<Option<Transfer>, Fault> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let [from, to, amount] = self.fields(line)?;
        if is_first && [&from, &to, &amount].iter().zip(HEADING).all(|(field, name)| field.eq_ignore_ascii_case(name)) {
            return Ok(None);
        }
        let (from, to) = (account(from)?, account(to)?);
        let amount = amount.parse().ok().filter(|amount| *amount > 0).ok_or(Fault::Amount)?;
        // No balance can get further from 0 than this, in whatever order the transfers are applied. So no addition can
        // overflow later, and none has to be checked.
        self.total = self.total.checked_add(amount).ok_or(Fault::Total)?;
        Ok(Some(Transfer { from, to, amount }))
    }

    /// Splits a line, which ends with a newline, and takes off quotes and surrounding blanks.
    fn fields(&mut self, line: &[u8]) -> Result<[String; 3], Fault> {
        self.csv.reset();
        self.field.resize(line.len(), 0);
        let mut fields = Vec::with_capacity(3);
        let mut rest = line;
        loop {
            let (result, read, written) = self.csv.read_field(rest, &mut self.field);
            // Only inside quotes is the newline not the end.
            let ReadFieldResult::Field { record_end } = result else { return Err(Fault::OpenQuote) };
            let field = str::from_utf8(&self.field[..written]).map_err(|_| Fault::NotText)?;
            fields.push(field.trim().to_owned());
            if record_end || fields.len() > 3 {
                return fields.try_into().map_err(|_| Fault::FieldCount);
            }
            rest = &rest[read..];
        }
    }
}

fn account(name: String) -> Result<String, Fault> {
    if name.is_empty() {
        return Err(Fault::EmptyAccount);
    }
    // It would reach the terminal of whoever prints the balances.
    if name.contains(char::is_control) {
        return Err(Fault::ControlCharacter);
    }
    Ok(name)
}

/// The offending text, made safe for a terminal and cut to a sensible length.
fn shown(text: &[u8]) -> String {
    const MOST: usize = 100;
    let text = String::from_utf8_lossy(text);
    let text = text.trim_end_matches(['\r', '\n']);
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(from: &str, to: &str, amount: i64) -> Transfer {
        Transfer { from: from.to_owned(), to: to.to_owned(), amount }
    }

    fn fault(input: &[u8]) -> (usize, Fault) {
        match read(input) {
            Err(ReadError::BadRow { line, fault, .. }) => (line, fault),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heading_and_blank_lines_are_skipped_and_quotes_and_blanks_taken_off() {
        let rows = [transfer("a", "b", 1), transfer("Bob, \"jr\"", "b c", 20)];
        let inputs = [
            "a,b,1\n\"Bob, \"\"jr\"\"\",b c,20\n",
            "a,b,1\n\"Bob, \"\"jr\"\"\",b c,20",
            "from,to,amount\na,b,1\n\"Bob, \"\"jr\"\"\",b c,20\n\n",
            "From, To, Amount\r\n\r\na,b,1\r\n \t \n\"Bob, \"\"jr\"\"\",b c,20\r\n",
            "\u{feff}from,to,amount\na , b ,\t1\n\"Bob, \"\"jr\"\" \",\"b c\",\"20\"",
        ];
        for input in inputs {
            assert_eq!(read(input.as_bytes()).unwrap(), rows, "{input:?}");
        }
        assert_eq!(read(&b""[..]).unwrap(), []);
    }

    #[test]
    fn a_bad_row_is_named_by_its_line_whatever_ends_lines() {
        for input in ["from,to,amount\n\n\na,b,1\nx\n", "from,to,amount\r\n\r\n\r\na,b,1\r\nx\r\n", "\n\n\n\nx"] {
            assert_eq!(fault(input.as_bytes()), (5, Fault::FieldCount), "{input:?}");
        }
    }

    #[test]
    fn every_fault_is_told_apart() {
        let cases: [(&[u8], Fault); 20] = [
            (b"a,b", Fault::FieldCount),
            (b"a,b,1,", Fault::FieldCount),
            (b"a,b,1,2,3,4", Fault::FieldCount),
            (b"a,b,1\rc,d,2", Fault::FieldCount),
            (b"a,b,1\r2", Fault::Amount),
            (b"a,b,", Fault::Amount),
            (b"a,b,0", Fault::Amount),
            (b"a,b,-5", Fault::Amount),
            (b"a,b,1.5", Fault::Amount),
            (b"a,b,1 000", Fault::Amount),
            (b"a,b,9223372036854775808", Fault::Amount),
            (b"from,to,Amounts", Fault::Amount),
            (b",b,1", Fault::EmptyAccount),
            (b"a, ,1", Fault::EmptyAccount),
            (b"a,\"\",1", Fault::EmptyAccount),
            (b"a,\x1b[2J,1", Fault::ControlCharacter),
            (b"a,\xff,1", Fault::NotText),
            (b"\"a,b,1", Fault::OpenQuote),
            (b"a,b,\"1", Fault::OpenQuote),
            (b"\"a\nb\",c,1", Fault::OpenQuote),
        ];
        for (input, expected) in cases {
            assert_eq!(fault(input), (1, expected), "{:?}", String::from_utf8_lossy(input));
        }
    }

    #[test]
    fn a_heading_further_down_is_a_bad_row() {
        assert_eq!(fault(b"a,b,1\nfrom,to,amount\n"), (2, Fault::Amount));
    }

    #[test]
    fn amounts_that_could_overflow_a_balance_are_refused() {
        let most = i64::MAX;
        assert_eq!(read(format!("a,b,{most}").as_bytes()).unwrap(), [transfer("a", "b", most)]);
        assert_eq!(fault(format!("a,b,{most}\nb,a,1").as_bytes()), (2, Fault::Total));
    }

    #[test]
    fn a_message_has_the_text_and_nothing_that_moves_a_cursor() {
        let message = |input: &[u8]| read(input).unwrap_err().to_string();
        let amount = "the amount is not a whole number from 1 to 9223372036854775807";
        assert_eq!(message(b"a,b,x\r\n"), format!("{amount}: \"a,b,x\""));
        assert_eq!(message(b"a,\x1b[2J\xff,1"), "not UTF-8 text: \"a,\\u{1b}[2J\u{fffd},1\"");
        let long = message("ä".repeat(1_000).as_bytes());
        assert_eq!(long, format!("expected 3 fields, from,to,amount: \"{}\"...", "ä".repeat(100)));
    }

    #[test]
    fn what_is_written_reads_back() {
        let rows = [transfer("a", "b", 1), transfer("b", "b", 2)];
        let mut text = Vec::new();
        write(&rows, &mut text).unwrap();
        assert_eq!(str::from_utf8(&text).unwrap(), "from,to,amount\na,b,1\nb,b,2\n");
        assert_eq!(read(&text[..]).unwrap(), rows);
    }
}
