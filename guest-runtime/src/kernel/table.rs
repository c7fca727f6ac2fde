//! Tables of objects with numbers: tasks, processes and address spaces.

use crate::convert::low_u32;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut, RangeBounds};

/// The place of an object in its [`Slab`] or [`Table`]: found without a search, and valid until the object is
/// removed.
pub struct Handle<T> {
    slot: u32,
    object: PhantomData<fn() -> T>,
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Handle<T> {}

impl<T> PartialEq for Handle<T> {
    fn eq(&self, other: &Self) -> bool {
        self.slot == other.slot
    }
}

impl<T> Eq for Handle<T> {}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.slot)
    }
}

impl<T> PartialOrd for Handle<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Handle<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.slot.cmp(&other.slot)
    }
}

/// Objects by handle.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Option<Box<T>>>,
    /// Slots without an object.
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Slab<T> {
    /// Adds an object.
    pub fn insert(&mut self, object: T) -> Handle<T> {
        let object = Some(Box::new(object));
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = object;
                slot
            }
            None => {
                self.slots.push(object);
                low_u32(self.slots.len() as u64) - 1
            }
        };
        Handle {
            slot,
            object: PhantomData,
        }
    }

    /// Removes an object. Its handle must not be used any more.
    pub fn remove(&mut self, handle: Handle<T>) -> Option<Box<T>> {
        let object = self.slots.get_mut(handle.slot as usize)?.take()?;
        self.free.push(handle.slot);
        Some(object)
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten().map(|object| &**object)
    }

    /// As [`iter`](Self::iter), mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().flatten().map(|object| &mut **object)
    }
}

/// Objects by handle and by number.
#[derive(Debug)]
pub struct Table<T> {
    objects: Slab<T>,
    /// The handle of each number.
    numbers: BTreeMap<u32, Handle<T>>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            objects: Slab::default(),
            numbers: BTreeMap::new(),
        }
    }
}

impl<T> Table<T> {
    /// Adds an object with a number that no other object has.
    pub fn insert(&mut self, number: u32, object: T) -> Handle<T> {
        let handle = self.objects.insert(object);
        let old = self.numbers.insert(number, handle);
        debug_assert!(old.is_none(), "the number {number} is in use");
        handle
    }

    /// Removes an object. Its handle must not be used any more.
    pub fn remove(&mut self, number: u32) -> Option<Box<T>> {
        self.objects.remove(self.numbers.remove(&number)?)
    }

    /// Gives an object another number, which no other object has. Its handle stays the same.
    pub fn renumber(&mut self, old: u32, new: u32) {
        if let Some(handle) = self.numbers.remove(&old) {
            self.numbers.insert(new, handle);
        }
    }

    /// The handle of the object with this number.
    #[must_use]
    pub fn handle(&self, number: u32) -> Option<Handle<T>> {
        self.numbers.get(&number).copied()
    }

    /// Whether there is an object with this number.
    #[must_use]
    pub fn contains(&self, number: u32) -> bool {
        self.numbers.contains_key(&number)
    }

    /// The object with this number.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&T> {
        Some(&self[self.handle(number)?])
    }

    /// As [`get`](Self::get), mutably.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let handle = self.handle(number)?;
        Some(&mut self[handle])
    }

    /// Number of objects.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Objects whose numbers are in `range`, in the order of their numbers.
    pub fn range(&self, range: impl RangeBounds<u32>) -> impl Iterator<Item = &T> {
        let handles = self.numbers.range(range);
        handles.map(|(_, &handle)| &self[handle])
    }

    /// All objects mutably, in no order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.objects.iter_mut()
    }
}

#[cold]
fn no_object() -> ! {
    panic!("a handle of an object that was removed")
}

impl<T> Index<Handle<T>> for Slab<T> {
    type Output = T;

    #[inline]
    fn index(&self, handle: Handle<T>) -> &T {
        match self.slots.get(handle.slot as usize) {
            Some(Some(object)) => object,
            _ => no_object(),
        }
    }
}

impl<T> IndexMut<Handle<T>> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, handle: Handle<T>) -> &mut T {
        match self.slots.get_mut(handle.slot as usize) {
            Some(Some(object)) => object,
            _ => no_object(),
        }
    }
}

impl<T> Index<Handle<T>> for Table<T> {
    type Output = T;

    #[inline]
    fn index(&self, handle: Handle<T>) -> &T {
        &self.objects[handle]
    }
}

impl<T> IndexMut<Handle<T>> for Table<T> {
    #[inline]
    fn index_mut(&mut self, handle: Handle<T>) -> &mut T {
        &mut self.objects[handle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_handle_and_by_number() {
        let mut table = Table::default();
        let (one, two) = (table.insert(20, 'a'), table.insert(10, 'b'));
        assert_eq!((table[one], table[two]), ('a', 'b'));
        assert_eq!(table.get(10), Some(&'b'));
        assert_eq!((table.handle(20), table.handle(30)), (Some(one), None));
        assert_eq!(table.range(..).collect::<Vec<_>>(), [&'b', &'a']);
        assert_eq!(table.range(11..).collect::<Vec<_>>(), [&'a']);
        table[one] = 'c';
        table.renumber(20, 5);
        assert_eq!((table.get(5), table.get(20)), (Some(&'c'), None));
        assert_eq!(table[one], 'c');
    }

    #[test]
    fn slots_are_used_again() {
        let mut table = Table::default();
        let first = table.insert(1, 'a');
        table.insert(2, 'b');
        assert_eq!(table.remove(1).as_deref(), Some(&'a'));
        assert_eq!(table.remove(1), None);
        assert_eq!(table.insert(3, 'c'), first);
        assert_eq!((table.count(), table.contains(1)), (2, false));
        table.iter_mut().for_each(|object| *object = 'x');
        assert_eq!(table.range(..).collect::<Vec<_>>(), [&'x', &'x']);
    }

    #[test]
    #[should_panic(expected = "removed")]
    fn handles_of_removed_objects_are_errors() {
        let mut table = Table::default();
        let handle = table.insert(1, 'a');
        table.remove(1);
        let _ = table[handle];
    }
}
