//! `HARTLINE_CHAOS=SEED[,WHAT…]`: schedules that a seed determines ([`hartline_abi::chaos`]). With
//! `check`, the runtime also checks itself, as with `--check`.

use hartline_abi::chaos::{Kind, Settings};

/// The environment variable.
pub const VARIABLE: &str = "HARTLINE_CHAOS";

/// The word that requests checks.
const CHECK: &str = "check";

/// The variable has no valid value.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The seed is invalid.
    #[error("HARTLINE_CHAOS={0}: must begin with the seed, a number below 2^64")]
    Seed(String),
    /// The kind is unknown.
    #[error("HARTLINE_CHAOS: `{0}` is not one of {names}, {CHECK}", names = names())]
    Kind(String),
}

fn names() -> String {
    Kind::ALL.map(|(name, _)| name).join(", ")
}

/// Parses a value of the variable; without a value there is no chaos.
///
/// # Errors
/// [`Error`].
pub fn parse(value: Option<&str>) -> Result<Settings, Error> {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return Ok(Settings::default());
    };
    let mut parts = value.split(',');
    let seed = parts.next().unwrap_or_default();
    let seed = seed.parse().map_err(|_| Error::Seed(value.to_owned()))?;
    let (mut kinds, mut check) = (0, 0);
    for part in parts {
        if part == CHECK {
            check = 1;
            continue;
        }
        let kind = Kind::ALL.iter().find(|(name, _)| *name == part);
        let (_, kind) = kind.ok_or_else(|| Error::Kind(part.to_owned()))?;
        kinds |= *kind as u32;
    }
    if kinds == 0 {
        kinds = Kind::ALL
            .iter()
            .fold(0, |set, (_, kind)| set | *kind as u32);
    }
    Ok(Settings { seed, kinds, check })
}

/// Reads the settings from the environment.
///
/// # Errors
/// [`Error`].
pub fn from_environment() -> Result<Settings, Error> {
    let value = std::env::var_os(VARIABLE);
    parse(
        value
            .map(|value| value.to_string_lossy().into_owned())
            .as_deref(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_understood() {
        assert_eq!(parse(None).unwrap(), Settings::default());
        assert_eq!(parse(Some("")).unwrap(), Settings::default());
        let all = parse(Some("18446744073709551615")).unwrap();
        assert_eq!((all.seed, all.kinds), (u64::MAX, 255));
        let some = parse(Some("5,pages,late")).unwrap();
        assert_eq!((some.seed, some.kinds, some.check), (5, 4 | 64, 0));
        let all = parse(Some("5,check")).unwrap();
        assert_eq!((all.kinds, all.check), (255, 1));
    }

    #[test]
    fn nonsense_is_refused() {
        for value in ["x", "-1", ",pages", "1 "] {
            assert!(matches!(parse(Some(value)), Err(Error::Seed(_))), "{value}");
        }
        let error = parse(Some("1,page")).unwrap_err().to_string();
        assert!(
            error.contains("`page`") && error.contains("pages"),
            "{error}"
        );
    }
}
