//! The files of a module, by their names.

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Change(u64),
    Merged(u64),
    Segment,
    Run,
}

/// What the file of this name is; `None` if it is no file of a module, or one that is still being written.
pub(crate) fn kind(name: &str) -> Option<Kind> {
    let number = |digits: &str| {
        let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?.filter(|number: &u64| *number < u64::MAX)
    };
    if let Some(digits) = name.strip_prefix("change-") {
        return number(digits).map(Kind::Change);
    }
    if let Some(digits) = name.strip_prefix("merged-") {
        return number(digits).map(Kind::Merged);
    }
    if let Some(rest) = name.strip_prefix("run-") {
        return rest.strip_suffix(".idx").filter(|own| is_hex(own, 32)).map(|_| Kind::Run);
    }
    let (random, tail) = name.strip_prefix("seg-")?.strip_suffix(".arrow")?.split_once('-')?;
    (is_hex(random, 32) && is_hex(tail, 16)).then_some(Kind::Segment)
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The name of a change.
pub(crate) fn change(number: u64) -> String {
    format!("change-{number:020}")
}

/// The name of the changes up to this number, merged.
pub(crate) fn merged(number: u64) -> String {
    format!("merged-{number:020}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_module_are_known_by_their_names_and_others_are_not() {
        let (random, tail) = ("0123456789abcdef".repeat(2), "0123456789abcdef");
        assert_eq!(kind(&change(7)), Some(Kind::Change(7)));
        assert_eq!(kind("merged-00000000000000000007"), Some(Kind::Merged(7)));
        assert_eq!(kind(&format!("run-{random}.idx")), Some(Kind::Run));
        assert_eq!(kind(&format!("seg-{random}-{tail}.arrow")), Some(Kind::Segment));
        let others = ["change-7", "change-18446744073709551615", "run-.idx", "notes.txt", "seg-a-b.arrow"];
        for other in others.map(str::to_owned).into_iter().chain([format!("tmp-{random}")]) {
            assert_eq!(kind(&other), None, "{other}");
        }
    }
}
