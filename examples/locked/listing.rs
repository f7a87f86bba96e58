//! Who holds what.

use std::io::{self, Write};

use perkey::distributed::Holder;

/// One holder: key, token, owner, and for how long. A `-` where there is none.
fn line(holder: &Holder) -> String {
    let token = holder.token.map_or_else(|| "-".to_owned(), |token| token.to_string());
    let owner = if holder.owner.is_empty() { "-" } else { &holder.owner };
    let remaining = holder.remaining.map_or_else(|| "-".to_owned(), |left| format!("{:.1}s", left.as_secs_f64()));
    // A key may have any characters: here it is one field of one line.
    format!("{}\t{token}\t{owner}\t{remaining}", holder.key.escape_debug())
}

/// That nobody reads it any more (`| head`) is no fault.
pub(crate) fn print(holders: &[Holder]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let printed = holders.iter().try_for_each(|holder| writeln!(out, "{}", line(holder))).and_then(|()| out.flush());
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_four_fields() {
        let held = Holder::new("a\tb\n", "0f", Some(7), None);
        assert_eq!(line(&held), "a\\tb\\n\t7\t0f\t-");
        let kept = Holder::new("Zürich", "", None, Some(Duration::from_millis(1_250)));
        assert_eq!(line(&kept), "Zürich\t-\t-\t1.2s");
    }
}
