//! `vinga admin set`: parameters that change while data nodes run.

use crate::table::grouped;
use vinga::{LiveParameter, LiveUnit};
use vinga_config::parameters::Parameter;
use vinga_config::value::Value;
use vinga_runtime::say;

/// What is to change.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    pub parameter: LiveParameter,
    pub value: u64,
}

/// Reads `Name=value`, as a configuration file has it.
pub fn parse(text: &str) -> Result<Change, String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as TimeBetweenEpochs=50")?;
    let known = Parameter::named(name.trim())?;
    let parameter = live(known).ok_or_else(|| {
        let all: Vec<&str> = LiveParameter::ALL.iter().map(|parameter| parameter.name()).collect();
        let name = known.name();
        format!(
            "{name} holds from the start of a node to its stop; these can change live: {}",
            all.join(", ")
        )
    })?;
    match known.description().kind.parse(value).map_err(|problem| format!("{}: {problem}", known.name()))? {
        Value::Integer(value) => Ok(Change { parameter, value }),
        other => unreachable!("a live parameter is a number, not {other:?}"),
    }
}

/// The same parameter, if it may change live.
fn live(known: Parameter) -> Option<LiveParameter> {
    LiveParameter::ALL.iter().copied().find(|parameter| parameter.name() == known.name())
}

/// Says that a change was made.
pub fn say_set(Change { parameter, value }: Change, json: bool) {
    let name = parameter.name();
    if json {
        say!("{}", serde_json::json!({ name: value }));
    } else {
        say!("{name} is {} from now on, until the data nodes are started again", in_words(parameter, value));
    }
}

/// A value with its unit.
fn in_words(parameter: LiveParameter, value: u64) -> String {
    let unit = parameter.unit().name();
    match parameter.unit() {
        LiveUnit::Milliseconds => format!("{value} {unit}"),
        LiveUnit::BytesPerSecond => format!("{} {unit}", grouped(value)),
        LiveUnit::LogWords => {
            format!("{value} ({} bytes of log, as the {unit} of four bytes)", grouped(4 << value))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vinga_config::parameters::TABLE;
    use vinga_config::value::{Kind, Unit};

    /// What data nodes check is what the configuration allows.
    #[test]
    fn both_tables_say_the_same() {
        for row in TABLE {
            let parameter = live(row.parameter);
            assert_eq!(parameter.is_some(), row.live, "{}", row.name);
            let Some(parameter) = parameter else { continue };
            let Kind::Integer { unit, min, max } = row.kind else { panic!("{} is no number", row.name) };
            let expected = match parameter.unit() {
                LiveUnit::Milliseconds => Unit::Milliseconds,
                LiveUnit::BytesPerSecond => Unit::Bytes,
                LiveUnit::LogWords => Unit::Count,
            };
            assert_eq!((unit, (min, max)), (expected, parameter.limits()), "{}", row.name);
        }
    }

    #[test]
    fn values_have_their_units() {
        let words = |text| parse(text).map(|Change { parameter, value }| in_words(parameter, value));
        assert_eq!(words("TimeBetweenEpochs=50").expect("it is allowed"), "50 ms");
        assert_eq!(words("MaxDiskWriteSpeed=2M").expect("it is allowed"), "2 097 152 bytes/s");
        let log = words("TimeBetweenLocalCheckpoints=20").expect("it is allowed");
        assert_eq!(log, "20 (4 194 304 bytes of log, as the log2 of words of four bytes)");
    }

    #[test]
    fn changes_are_read_as_in_a_configuration() {
        let change = parse("max-disk-write-speed = 100M").expect("it is allowed");
        assert_eq!((change.parameter, change.value), (LiveParameter::MaxDiskWriteSpeed, 100 << 20));
        let refused = |text| parse(text).expect_err("it is refused");
        assert!(refused("TimeBetweenEpochs").contains("NAME=VALUE"));
        assert!(refused("TimeBetweenEpoch=1").contains("did you mean TimeBetweenEpochs?"));
        assert!(refused("DataMemory=1G").contains("holds from the start of a node to its stop"));
        assert!(refused("TimeBetweenEpochs=0").contains("less than the minimum 1"));
    }
}
