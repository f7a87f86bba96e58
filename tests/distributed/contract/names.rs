//! Keys that were not chosen to be convenient.

use perkey::distributed::LeaseOptions;

use super::Place;

pub(crate) fn any_name_is_a_key_of_its_own<P: Place>(place: &P) {
    let long = "x".repeat(10_000);
    let (longer, other) = (format!("{long}x"), format!("{}y", "x".repeat(9_999)));
    let mut names = vec![
        "",
        " ",
        "  ",
        "a",
        "A",
        "a ",
        " a",
        "\n",
        "a\n",
        "a\nb",
        "\r\n",
        "\t",
        "/",
        "//",
        "a/",
        "/a",
        "a/b",
        ".",
        "..",
        "../x",
        "x",
        "%2e",
        "%",
        "*",
        "?",
        "[a]",
        "{a}",
        "$a",
        "`a`",
        "'",
        "\"",
        "\\",
        "\\n",
        "-rf",
        "--",
        ":",
        "a:b",
        "\0",
        "a\0",
        "a\0b",
        "\u{7f}",
        "\u{1b}[2J",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "ﬀ",
        "Zürich 🚋",
        "日本語",
        "\u{feff}",
        "\u{202e}",
        "\u{10ffff}",
        "NUL",
        "con",
        "perkey",
        "perkey/a",
        &long,
        &longer,
        &other,
    ];
    let (here, there) = (place.locks(), place.locks());
    let leases: Vec<_> = names
        .iter()
        .map(|name| here.try_lock(name).unwrap().unwrap_or_else(|| panic!("{name:.40?} is another's key")))
        .collect();
    for (name, lease) in names.iter().zip(&leases) {
        assert_eq!(lease.key(), *name);
        assert!(there.try_lock(name).unwrap().is_none(), "{name:.40?} is not locked");
    }
    if place.capabilities().lists_holders {
        names.sort_unstable();
        let listed = there.holders("").unwrap();
        assert!(listed.iter().map(|holder| &*holder.key).eq(names.iter().copied()), "{listed:.40?}");
    }
    drop(leases);
    place.check_free(&names);
}

pub(crate) fn a_separator_in_a_name_separates_nothing<P: Place>(place: &P) {
    let names = [("a", "b/c"), ("a/b", "c"), ("", "a/b/c"), ("a/b/c", ""), ("a:b", "c"), ("a", "b:c"), ("a\n", "b")];
    let leases = names.map(|(namespace, key)| {
        let lease = place.locks_with(LeaseOptions::new().namespace(namespace)).try_lock(key).unwrap();
        lease.unwrap_or_else(|| panic!("{key:?} in {namespace:?} is another's key"))
    });
    if place.capabilities().lists_holders {
        for (namespace, _) in names {
            let listed = place.locks_with(LeaseOptions::new().namespace(namespace)).holders("").unwrap();
            let expected = names.iter().filter(|(of, _)| *of == namespace).map(|(_, key)| *key);
            assert!(listed.iter().map(|holder| &*holder.key).eq(expected), "in {namespace:?}: {listed:?}");
        }
    }
    drop(leases);
}
