//! Updates by key, one after the other: each is sent alone, and its answer is waited for.

use crate::failure::{Failure, Result};
use crate::keys::ValueMaker;
use crate::target::{Kind, Lane, Outcome, Target};

/// One thread's updates.
pub struct Updates<L: Lane> {
    lane: L,
    values: ValueMaker,
}

impl<L: Lane> Updates<L> {
    /// Updates of a table whose column has this many bytes.
    ///
    /// # Errors
    /// The database's.
    pub fn new<T: Target<Lane = L>>(target: &T, table: &T::Table, value_bytes: u16) -> Result<Self> {
        Ok(Updates { lane: target.lane(table, 0, 1, 1)?, values: ValueMaker::new(value_bytes) })
    }

    /// Updates a row to its value of this generation; returns why that failed, if it did.
    ///
    /// # Errors
    /// The connection is lost, or the answer is to another kind of operation.
    pub fn update(&mut self, id: u64, generation: u64) -> Result<Option<String>> {
        self.lane.begin(0, Kind::Update);
        self.lane.push(0, id, self.values.make(id, generation))?;
        self.lane.start(0)?;
        let slot = self.lane.wait()?;
        match self.lane.outcome(slot, 0) {
            Outcome::Done => Ok(None),
            Outcome::Failed(why) => Ok(Some(why)),
            Outcome::Row(_) | Outcome::NoRow => Err(Failure::new("an update was answered as a read")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_target::FakeTarget;
    use crate::load::load;
    use crate::target::TableShape;

    #[test]
    fn a_row_is_updated_or_it_is_said_why_not() {
        let target = FakeTarget::default();
        let table = target.create_table("t", &TableShape::Value { bytes: 8 }).unwrap();
        load(&target, &table, 0..1, |_, out| out.extend([0; 8])).unwrap();
        let mut updates = Updates::new(&target, &table, 8).unwrap();
        assert_eq!(updates.update(0, 5).unwrap(), None);
        let mut value = Vec::new();
        assert!(target.get(&table, 0, &mut value).unwrap());
        assert!(ValueMaker::new(8).is(&value, 0, 5));
        assert_eq!(updates.update(1, 5).unwrap().as_deref(), Some("there is no such row"));
    }
}
