//! Integers in JSON. In JSON Schema, and so in the API's description, `1.0` and `1e3` are integers
//! too; serde reads them as floating-point numbers.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Reads an integer that is not negative: for `#[serde(deserialize_with)]`.
///
/// # Errors
/// The value is no integer, or is out of the type's range.
pub fn unsigned<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
    from.deserialize_u64(Unsigned(PhantomData))
}

/// Reads an optional integer: for `#[serde(default)]` fields.
///
/// # Errors
/// As [`unsigned`].
pub fn optional<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<u64>,
{
    struct Value<T>(T);
    impl<'de, T: TryFrom<u64>> Deserialize<'de> for Value<T> {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            unsigned(from).map(Self)
        }
    }
    Ok(Option::<Value<T>>::deserialize(from)?.map(|value| value.0))
}

struct Unsigned<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for Unsigned<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an integer from 0 to {}",
            u64::MAX >> (64 - 8 * size_of::<T>())
        )
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<T, E> {
        let wrong = |_| E::invalid_value(Unexpected::Unsigned(value), &self);
        T::try_from(value).map_err(wrong)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<T, E> {
        match u64::try_from(value) {
            Ok(value) => self.visit_u64(value),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(value), &self)),
        }
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<T, E> {
        // 2^64 is the first value that does not fit. All integers below it that a floating-point
        // number can hold do fit, exactly.
        const END: f64 = 18_446_744_073_709_551_616.0;
        match value.fract() == 0.0 && (0.0..END).contains(&value) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the value is an integer from 0 to below 2^64"
            )]
            true => self.visit_u64(value as u64),
            false => Err(E::invalid_value(Unexpected::Float(value), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Numbers {
        #[serde(deserialize_with = "super::unsigned")]
        small: u32,
        #[serde(default, deserialize_with = "super::optional")]
        large: Option<u64>,
    }

    fn read(json: &str) -> Result<Numbers, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn integers_are_read_however_they_are_written() {
        for (json, small, large) in [
            (r#"{"small": 1}"#, 1, None),
            (r#"{"small": 1.0, "large": null}"#, 1, None),
            (r#"{"small": -0.0, "large": 1e3}"#, 0, Some(1000)),
            (
                r#"{"small": 4294967295, "large": 18446744073709551615}"#,
                u32::MAX,
                Some(u64::MAX),
            ),
            (
                r#"{"small": 4294967295.0, "large": 9007199254740993}"#,
                u32::MAX,
                Some((1 << 53) + 1),
            ),
        ] {
            assert_eq!(read(json), Ok(Numbers { small, large }), "{json}");
        }
    }

    #[test]
    fn other_values_are_refused() {
        for small in [
            "1.5",
            "-1",
            "-1.0",
            "4294967296",
            "1e30",
            "null",
            "\"1\"",
            "true",
            "[1]",
        ] {
            let error = read(&format!("{{\"small\": {small}}}")).unwrap_err();
            assert!(
                error.contains("an integer from 0 to 4294967295"),
                "{small}: {error}"
            );
        }
        for large in ["18446744073709551616", "1.8446744073709552e19", "0.5"] {
            let error = read(&format!("{{\"small\": 0, \"large\": {large}}}")).unwrap_err();
            assert!(
                error.contains("an integer from 0 to 18446744073709551615"),
                "{large}: {error}"
            );
        }
    }
}
