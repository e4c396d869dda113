//! Parameters whose value may change while data nodes run.
//!
//! The configuration (`vinga-config`) has the same names, units and limits, and a test that compares them; here is what
//! travels between nodes.

use alloc::format;
use alloc::string::String;

/// What a value counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LiveUnit {
    /// Milliseconds.
    Milliseconds,
    /// Bytes a second.
    BytesPerSecond,
    /// The logarithm to base 2 of a number of words of four bytes.
    LogWords,
}

impl LiveUnit {
    /// How it is written behind a value.
    pub const fn name(self) -> &'static str {
        match self {
            LiveUnit::Milliseconds => "ms",
            LiveUnit::BytesPerSecond => "bytes/s",
            LiveUnit::LogWords => "log2 of words",
        }
    }
}

macro_rules! live_parameters {
    ($($name:ident = $number:literal, $unit:ident, $min:expr, $max:expr;)+) => {
        /// A parameter that may change live; the numbers are those on the wire.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u16)]
        pub enum LiveParameter {
            $(#[doc = concat!("`", stringify!($name), "`.")] $name = $number,)+
        }

        impl LiveParameter {
            /// All of them.
            pub const ALL: &'static [LiveParameter] = &[$(LiveParameter::$name,)+];

            /// The parameter with a number; `None` if there is none.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(LiveParameter::$name),)+
                    _ => None,
                }
            }

            /// The name in the configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $(LiveParameter::$name => stringify!($name),)+
                }
            }

            /// What a value counts.
            pub const fn unit(self) -> LiveUnit {
                match self {
                    $(LiveParameter::$name => LiveUnit::$unit,)+
                }
            }

            /// The least and the greatest value.
            pub const fn limits(self) -> (u64, u64) {
                match self {
                    $(LiveParameter::$name => ($min, $max),)+
                }
            }
        }
    };
}

live_parameters! {
    TransactionDeadlockDetectionTimeout = 1, Milliseconds, 50, 4_294_967_039;
    TransactionInactiveTimeout = 2, Milliseconds, 0, 4_294_967_039;
    TimeBetweenEpochs = 3, Milliseconds, 1, 32_000;
    TimeBetweenGlobalCheckpoints = 4, Milliseconds, 20, 32_000;
    TimeBetweenLocalCheckpoints = 5, LogWords, 0, 31;
    MinDiskWriteSpeed = 6, BytesPerSecond, 1 << 20, 1 << 40;
    MaxDiskWriteSpeed = 7, BytesPerSecond, 1 << 20, 1 << 40;
    MaxDiskWriteSpeedOtherNodeRestart = 8, BytesPerSecond, 1 << 20, 1 << 40;
    MaxDiskWriteSpeedOwnRestart = 9, BytesPerSecond, 1 << 20, 1 << 40;
}

impl LiveParameter {
    const fn index(self) -> usize {
        self as usize - 1
    }
}

/// The values that hold on a node at present; `None` where the node has no use for the parameter.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct LiveValues([Option<u64>; LiveParameter::ALL.len()]);

impl LiveValues {
    /// The value of a parameter.
    pub fn get(&self, parameter: LiveParameter) -> Option<u64> {
        self.0[parameter.index()]
    }

    /// Changes it; the caller has checked it.
    pub fn set(&mut self, parameter: LiveParameter, value: u64) {
        self.0[parameter.index()] = Some(value);
    }

    /// All values there are.
    pub fn iter(&self) -> impl Iterator<Item = (LiveParameter, u64)> + '_ {
        LiveParameter::ALL.iter().filter_map(|&parameter| Some((parameter, self.get(parameter)?)))
    }

    /// Whether a parameter may get this value now.
    ///
    /// # Errors
    /// A sentence that says why not, and what is allowed.
    pub fn check(&self, parameter: LiveParameter, value: u64) -> Result<(), String> {
        let (name, unit) = (parameter.name(), parameter.unit().name());
        let (min, max) = parameter.limits();
        if self.get(parameter).is_none() {
            return Err(format!("{name} has no effect: the data nodes keep nothing on disk"));
        }
        if !(min..=max).contains(&value) {
            return Err(format!("{name} may be {min} to {max} {unit}, not {value}"));
        }
        let mut next = self.clone();
        next.set(parameter, value);
        next.check_speeds()?;
        next.check_epochs()
    }

    /// An epoch is not longer than the time between global checkpoints.
    fn check_epochs(&self) -> Result<(), String> {
        use LiveParameter as P;
        let (epoch, between) = (self.get(P::TimeBetweenEpochs), self.get(P::TimeBetweenGlobalCheckpoints));
        match (epoch, between) {
            (Some(epoch), Some(between)) if epoch > between => Err(format!(
                "TimeBetweenEpochs ({epoch} ms) would be greater than TimeBetweenGlobalCheckpoints ({between} ms): a \
                 global checkpoint brings whole epochs to the disk; allowed: at most as much"
            )),
            _ => Ok(()),
        }
    }

    /// The least speed is not above one of the greatest.
    fn check_speeds(&self) -> Result<(), String> {
        use LiveParameter as P;
        let Some(min) = self.get(P::MinDiskWriteSpeed) else { return Ok(()) };
        for greatest in
            [P::MaxDiskWriteSpeed, P::MaxDiskWriteSpeedOtherNodeRestart, P::MaxDiskWriteSpeedOwnRestart]
        {
            if let Some(max) = self.get(greatest)
                && max < min
            {
                let name = greatest.name();
                return Err(format!("MinDiskWriteSpeed ({min}) would be greater than {name} ({max})"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LiveParameter as P;

    fn all(value: impl Fn(P) -> u64) -> LiveValues {
        let mut values = LiveValues::default();
        P::ALL.iter().for_each(|&parameter| values.set(parameter, value(parameter)));
        values
    }

    #[test]
    fn numbers_are_found_again() {
        for (number, &parameter) in (1..).zip(P::ALL) {
            assert_eq!(P::from_number(number), Some(parameter));
        }
        assert_eq!((P::from_number(0), P::from_number(10)), (None, None));
    }

    #[test]
    fn values_are_checked_alone_and_together() {
        let values = all(|parameter| parameter.limits().1);
        assert_eq!(values.check(P::TimeBetweenEpochs, 10), Ok(()));
        assert_eq!(
            values.check(P::TimeBetweenEpochs, 0),
            Err("TimeBetweenEpochs may be 1 to 32000 ms, not 0".into())
        );
        assert_eq!(
            values.check(P::MaxDiskWriteSpeedOwnRestart, 5 << 20),
            Err("MinDiskWriteSpeed (1099511627776) would be greater than MaxDiskWriteSpeedOwnRestart (5242880)".into())
        );
        let mut values = values;
        values.set(P::TimeBetweenGlobalCheckpoints, 200);
        values.set(P::TimeBetweenEpochs, 100);
        assert_eq!(values.check(P::TimeBetweenEpochs, 200), Ok(()));
        assert_eq!(values.check(P::TimeBetweenGlobalCheckpoints, 100), Ok(()));
        for (parameter, value, epoch, between) in
            [(P::TimeBetweenEpochs, 201, 201, 200), (P::TimeBetweenGlobalCheckpoints, 99, 100, 99)]
        {
            let why = values.check(parameter, value).expect_err("an epoch would be longer");
            assert!(
                why.contains(&format!("({epoch} ms)")) && why.contains(&format!("({between} ms)")),
                "{why}"
            );
        }
        assert_eq!(
            LiveValues::default().check(P::MinDiskWriteSpeed, 2 << 20),
            Err("MinDiskWriteSpeed has no effect: the data nodes keep nothing on disk".into())
        );
    }
}
