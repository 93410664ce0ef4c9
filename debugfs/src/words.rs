//! A command line taken apart: words, flags, numbers.

use ext4kit_cli::exit::Failure;
use ext4kit_cli::size::parse_number;

/// One word of a command line; names need not be UTF-8.
pub type Word = Vec<u8>;

/// A word for messages.
pub fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Splits a line at blanks. Double quotes keep blanks, and inside them two quotes stand for one. `None` if a quote is
/// left open.
pub fn split(line: &[u8]) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut current: Option<Word> = None;
    let mut quoted = false;
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                current.get_or_insert_default().push(b'"');
            }
            b'"' => {
                quoted = !quoted;
                current.get_or_insert_default();
            }
            b' ' | b'\t' | b'\n' | b'\r' if !quoted => words.extend(current.take()),
            _ => current.get_or_insert_default().push(byte),
        }
    }
    words.extend(current);
    (!quoted).then_some(words)
}

/// Flags of a command and what is left of its words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    flags: Vec<(char, Option<Word>)>,
    /// The words that are no flags.
    pub rest: Vec<Word>,
}

impl Flags {
    /// Reads flags as getopt does; a letter followed by `:` takes a value. A letter that is not known is the error.
    pub fn parse(words: &[Word], letters: &str) -> Result<Self, String> {
        let mut found = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == b"--" {
                found.rest.extend(words.cloned());
                break;
            }
            let Some(group) = word.strip_prefix(b"-").filter(|group| !group.is_empty()) else {
                found.rest.push(word.clone());
                continue;
            };
            for (at, byte) in group.iter().enumerate() {
                let letter = char::from(*byte);
                let Some(place) = letters.find(letter).filter(|_| letter != ':') else {
                    return Err(format!("invalid option -- '{letter}'"));
                };
                if letters.as_bytes().get(place + 1) != Some(&b':') {
                    found.flags.push((letter, None));
                    continue;
                }
                let glued = group.get(at + 1..).filter(|rest| !rest.is_empty()).map(<[u8]>::to_vec);
                let Some(value) = glued.or_else(|| words.next().cloned()) else {
                    return Err(format!("option requires an argument -- '{letter}'"));
                };
                found.flags.push((letter, Some(value)));
                break;
            }
        }
        Ok(found)
    }

    /// Whether a flag is there.
    pub fn has(&self, letter: char) -> bool {
        self.flags.iter().any(|(found, _)| *found == letter)
    }

    /// The value of a flag, the last one if there are several.
    pub fn value(&self, letter: char) -> Option<&Word> {
        self.flags.iter().rev().find(|(found, _)| *found == letter).and_then(|(_, value)| value.as_ref())
    }
}

/// A number in decimal, hexadecimal or octal, as in C.
pub fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok().and_then(|word| parse_number(word).ok())
}

/// A number, or the failure `command: Bad what - word`.
pub fn number_or(command: &str, what: &str, word: &[u8]) -> Result<u64, Failure> {
    number(word).ok_or_else(|| Failure::usage(command, format!("Bad {what} - {}", text(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Word> {
        split(line.as_bytes()).unwrap()
    }

    #[test]
    fn blanks_separate_and_quotes_keep() {
        assert_eq!(words("  ls\t-l  \"a b\" "), [b"ls".to_vec(), b"-l".to_vec(), b"a b".to_vec()]);
        assert_eq!(words("cat \"say \"\"hi\"\"\""), [b"cat".to_vec(), b"say \"hi\"".to_vec()]);
        assert_eq!(words("x \"\""), [b"x".to_vec(), Vec::new()]);
        assert_eq!(split(b"ls \"a"), None);
        assert!(words(" \t").is_empty());
    }

    #[test]
    fn flags_are_read_as_by_getopt() {
        let flags = Flags::parse(&words("-lp -n3 a -s 7 -- -d"), "lpdn:s:").unwrap();
        assert!(flags.has('l') && flags.has('p') && !flags.has('d'));
        assert_eq!((flags.value('n'), flags.value('s')), (Some(&b"3".to_vec()), Some(&b"7".to_vec())));
        assert_eq!(flags.rest, words("a -d"));
        assert_eq!(Flags::parse(&words("-x"), "l").unwrap_err(), "invalid option -- 'x'");
        assert_eq!(Flags::parse(&words("-n"), "n:").unwrap_err(), "option requires an argument -- 'n'");
        assert_eq!(Flags::parse(&words("-:"), "n:").unwrap_err(), "invalid option -- ':'");
    }
}
