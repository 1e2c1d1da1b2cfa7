//! Numbers as people say them.

use std::time::Duration;

/// Milliseconds as people say them, without the unit.
pub(crate) fn ms(length: Duration) -> String {
    number(length.as_secs_f64() * 1e3)
}

/// A number with as many digits as matter.
pub(crate) fn number(value: f64) -> String {
    if value >= 9.95 || value == 0.0 {
        count(value.round() as u64)
    } else if value >= 0.095 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// A whole number, in groups of three digits.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let grouped = digits.char_indices().flat_map(|(place, digit)| {
        let comma = (place > 0 && (digits.len() - place).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    });
    grouped.collect()
}

/// A number of bytes as people say it.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} bytes"),
        1_000..1_000_000 => format!("{} kB", number(count as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} MB", number(count as f64 / 1e6)),
        _ => format!("{} GB", number(count as f64 / 1e9)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let said = [0.0, 0.012, 0.14, 3.12, 9.96, 312.4, 4812.0, 1_234_567.0].map(number);
        assert_eq!(said, ["0", "0.01", "0.1", "3.1", "10", "312", "4,812", "1,234,567"]);
        assert_eq!([60, 1_000, 40_000, 1_500_000].map(bytes), ["60 bytes", "1.0 kB", "40 kB", "1.5 MB"]);
    }
}
