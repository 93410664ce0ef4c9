//! Numbers with a unit, as e2fsprogs reads them.
//!
//! A number is decimal, hexadecimal after `0x`, or octal after another leading `0`, as in C. At most one letter
//! follows: `k`, `m`, `g`, `t` for powers of 1024, `s` for sectors of 512 bytes, in either case except for `s`.
//! What a number without a letter counts is for the caller to say: kilobytes, blocks or bytes.

/// Why a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// It does not begin with a number.
    #[error("`{0}` is not a number")]
    NotANumber(String),
    /// Something other than one unit letter follows the number.
    #[error("`{unit}` in `{text}` is not a unit; use k, m, g, t or s")]
    Unit {
        /// The whole text.
        text: String,
        /// What follows the number.
        unit: String,
    },
    /// It is a size, but of more bytes than 64 bits can count.
    #[error("`{0}` is too large")]
    TooLarge(String),
}

/// A size in bytes. A number without a letter counts units of `bare_unit` bytes.
pub fn parse_size(text: &str, bare_unit: u64) -> Result<u64, SizeError> {
    let (number, unit) = split_number(text)?;
    let factor = match unit {
        "" => bare_unit,
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        "s" => 512,
        _ => return Err(SizeError::Unit { text: text.to_owned(), unit: unit.to_owned() }),
    };
    number.checked_mul(factor).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

/// A number without a unit, in the same notations.
pub fn parse_number(text: &str) -> Result<u64, SizeError> {
    match split_number(text)? {
        (number, "") => Ok(number),
        _ => Err(SizeError::NotANumber(text.to_owned())),
    }
}

/// The number that a text begins with, and what follows it.
fn split_number(text: &str) -> Result<(u64, &str), SizeError> {
    let trimmed = text.trim_start();
    let hexadecimal = trimmed.strip_prefix("0x").or_else(|| trimmed.strip_prefix("0X"));
    let (digits, radix) = match hexadecimal {
        Some(rest) => (rest, 16),
        None if trimmed.starts_with('0') => (trimmed, 8),
        None => (trimmed, 10),
    };
    let end = digits.find(|letter: char| !letter.is_digit(radix)).unwrap_or(digits.len());
    let (digits, unit) = digits.split_at_checked(end).unwrap_or((digits, ""));
    if digits.is_empty() || unit.starts_with(|letter: char| letter.is_ascii_digit()) {
        return Err(SizeError::NotANumber(text.to_owned()));
    }
    let number = u64::from_str_radix(digits, radix).map_err(|_| SizeError::TooLarge(text.to_owned()))?;
    Ok((number, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_by_the_classic_tools() {
        let table = [
            ("0", 1024, 0),
            ("8192", 1024, 8 << 20),
            ("8192", 4096, 32 << 20),
            ("8192", 1, 8192),
            ("64k", 1, 65536),
            ("64K", 4096, 65536),
            ("100M", 1024, 100 << 20),
            ("3g", 1024, 3 << 30),
            ("2T", 1024, 2 << 40),
            ("16384s", 1024, 8 << 20),
            ("0x10M", 1024, 16 << 20),
            ("0X1f", 1, 31),
            ("010M", 1024, 8 << 20),
            (" 8M", 1024, 8 << 20),
            ("18446744073709551615", 1, u64::MAX),
            ("16777215T", 1, 16_777_215 << 40),
        ];
        for (text, bare_unit, bytes) in table {
            assert_eq!(parse_size(text, bare_unit), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_said() {
        let table = [
            ("", "`` is not a number"),
            ("M", "`M` is not a number"),
            ("-8M", "`-8M` is not a number"),
            ("+8M", "`+8M` is not a number"),
            ("08M", "`08M` is not a number"),
            ("0x", "`0x` is not a number"),
            ("8 M", "` M` in `8 M` is not a unit; use k, m, g, t or s"),
            ("8Mi", "`Mi` in `8Mi` is not a unit; use k, m, g, t or s"),
            ("8M4", "`M4` in `8M4` is not a unit; use k, m, g, t or s"),
            ("1.5G", "`.5G` in `1.5G` is not a unit; use k, m, g, t or s"),
            ("8S", "`S` in `8S` is not a unit; use k, m, g, t or s"),
            ("8µ", "`µ` in `8µ` is not a unit; use k, m, g, t or s"),
            ("16777216T", "`16777216T` is too large"),
            ("18446744073709551616", "`18446744073709551616` is too large"),
        ];
        for (text, message) in table {
            assert_eq!(parse_size(text, 1).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn a_plain_number_has_no_unit() {
        assert_eq!(parse_number("0x20"), Ok(32));
        assert_eq!(parse_number("32k"), Err(SizeError::NotANumber("32k".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics_and_numbers_come_back(text in ".{0,12}", number: u64) {
            let _ = parse_size(&text, u64::MAX);
            proptest::prop_assert_eq!(parse_number(&number.to_string()), Ok(number));
            proptest::prop_assert_eq!(parse_number(&format!("{number:#x}")), Ok(number));
            proptest::prop_assert_eq!(parse_number(&format!("0{number:o}")), Ok(number));
        }
    }
}
