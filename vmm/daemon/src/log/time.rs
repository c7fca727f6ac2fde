//! Times of logs: nanoseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const SECOND: u64 = 1_000_000_000;
/// Units of durations, nanoseconds. A unit that another one begins with comes later.
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("h", 3600 * SECOND),
    ("m", 60 * SECOND),
    ("s", SECOND),
];

/// The present time.
#[must_use]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    nanoseconds(since.unwrap_or_default())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A time as RFC 3339 writes it, with nine digits of the fraction.
#[must_use]
pub fn stamp(time: u64) -> String {
    // Every number of nanoseconds that fits 64 bits is before the year 2555.
    let date = OffsetDateTime::from_unix_timestamp_nanos(time.into());
    let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second, nanosecond) = date.to_hms_nano();
    let month = u8::from(month);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanosecond:09}Z")
}

/// The start of the requested part of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// A time.
    Time(u64),
    /// Nanoseconds before the present.
    Ago(u64),
}

/// A text is not a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a time as 2026-01-31T12:00:00Z, seconds since 1970, or a duration before now as 1h30m"
)]
pub struct InvalidTime;

impl Since {
    /// Reads a time of RFC 3339, seconds since 1970 with an optional fraction, or a duration before
    /// the present with units from `ns` to `h`.
    ///
    /// # Errors
    /// [`InvalidTime`].
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        if let Some(time) = scaled(text, SECOND) {
            return Ok(Self::Time(time));
        }
        if let Ok(date) = OffsetDateTime::parse(text, &Rfc3339) {
            let time = date.unix_timestamp_nanos().max(0);
            return Ok(Self::Time(u64::try_from(time).unwrap_or(u64::MAX)));
        }
        duration(text).map(Self::Ago).ok_or(InvalidTime)
    }

    /// The time, at the time `now`.
    #[must_use]
    pub fn at(self, now: u64) -> u64 {
        match self {
            Self::Time(time) => time,
            Self::Ago(ago) => now.saturating_sub(ago),
        }
    }
}

/// A sum of numbers with units.
fn duration(text: &str) -> Option<u64> {
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (number, unit) = rest.split_at(end);
        let (name, scale) = UNITS.iter().find(|(name, _)| unit.starts_with(name))?;
        sum = sum.saturating_add(scaled(number, *scale)?);
        rest = &unit[name.len()..];
    }
    (!text.is_empty()).then_some(sum)
}

/// A decimal number with an optional fraction of at most nine digits, times `scale`, at most
/// `u64::MAX`.
fn scaled(text: &str, scale: u64) -> Option<u64> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text, "0"),
    };
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.saturating_mul(scale);
    let digits = u32::try_from(fraction.len()).ok()?;
    let fraction = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale);
    let fraction = fraction / 10_u128.pow(digits);
    Some(whole.saturating_add(u64::try_from(fraction).ok()?))
}
