//! Lists of what API nodes have asked for and wait for, of which one of them can't take the room of all others.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What waits, by API node.
pub struct Shares<T> {
    lists: BTreeMap<u32, Vec<T>>,
    len: usize,
    each: usize,
    together: usize,
}

/// There is no room for more of this API node.
#[derive(Debug, PartialEq, Eq)]
pub struct Full;

impl<T> Shares<T> {
    /// Empty. An API node may have `each` in any case, and more while there are fewer than `together` of all.
    pub fn new(each: usize, together: usize) -> Self {
        Shares { lists: BTreeMap::new(), len: 0, each, together }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What an API node has.
    pub fn of(&self, api: u32) -> &[T] {
        self.lists.get(&api).map_or(&[], Vec::as_slice)
    }

    /// Adds one of an API node.
    ///
    /// # Errors
    /// It has its share, and others have the rest.
    pub fn push(&mut self, api: u32, one: T) -> Result<(), Full> {
        if self.len >= self.together && self.of(api).len() >= self.each {
            return Err(Full);
        }
        self.lists.entry(api).or_default().push(one);
        self.len += 1;
        Ok(())
    }

    /// Drops what an API node has.
    pub fn remove(&mut self, api: u32) {
        self.len -= self.lists.remove(&api).map_or(0, |list| list.len());
    }

    /// Takes those for which `is_due` holds, by API node, of each in the order in which they have come.
    pub fn take(&mut self, mut is_due: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut due = Vec::new();
        self.lists.retain(|_, list| {
            due.extend(list.extract_if(.., |one| is_due(one)));
            !list.is_empty()
        });
        self.len -= due.len();
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_api_node_leaves_room_for_the_shares_of_others() {
        let mut shares = Shares::new(2, 5);
        let taken = (0..10).take_while(|&one| shares.push(1, one).is_ok()).count();
        assert_eq!(taken, 5, "all of the room, while nobody else wants it");
        assert_eq!(shares.push(2, 20), Ok(()));
        assert_eq!(shares.push(2, 21), Ok(()));
        assert_eq!(shares.push(2, 22), Err(Full));
        assert_eq!(shares.push(3, 30), Ok(()));
        assert_eq!(shares.of(2), [20, 21]);

        assert_eq!(shares.take(|one| one % 2 == 0), [0, 2, 4, 20, 30]);
        assert_eq!((shares.of(1), shares.of(2), shares.of(3)), (&[1, 3][..], &[21][..], &[][..]));
        shares.remove(1);
        assert!(!shares.is_empty());
        shares.remove(2);
        shares.remove(9);
        assert!(shares.is_empty());
        assert_eq!((0..10).take_while(|&one| shares.push(4, one).is_ok()).count(), 5);
    }
}
