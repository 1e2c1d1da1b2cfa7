//! A queue that is always sorted. Values come and leave mostly at its ends, which takes the same time however long it is;
//! in the middle the shorter half moves.

use std::collections::VecDeque;

/// Values in ascending order, each at most once.
#[derive(Clone, Debug)]
pub struct SortedQueue<T>(VecDeque<T>);

impl<T> Default for SortedQueue<T> {
    fn default() -> SortedQueue<T> {
        SortedQueue(VecDeque::new())
    }
}

impl<T: Copy + Ord> SortedQueue<T> {
    /// Adds a value at its place.
    pub fn insert(&mut self, value: T) {
        if self.0.back().is_none_or(|last| *last < value) {
            self.0.push_back(value);
        } else {
            let index = self.0.partition_point(|other| *other < value);
            self.0.insert(index, value);
        }
    }

    /// Removes a value and returns it as it was stored; `None` if it is not here.
    pub fn remove(&mut self, value: T) -> Option<T> {
        let index = self.0.binary_search(&value).ok()?;
        self.0.remove(index)
    }

    /// Removes the value at an index.
    pub fn remove_at(&mut self, index: usize) -> Option<T> {
        self.0.remove(index)
    }

    /// Removes `old` and adds `new`, unless both are the same.
    pub fn replace(&mut self, old: Option<T>, new: Option<T>) {
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.remove(old);
        }
        if let Some(new) = new {
            self.insert(new);
        }
    }

    /// The smallest value.
    pub fn first(&self) -> Option<T> {
        self.0.front().copied()
    }

    /// The value at an index.
    pub fn get(&self, index: usize) -> Option<T> {
        self.0.get(index).copied()
    }

    /// The value at an index, to be changed in what does not decide its place.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.0.get_mut(index)
    }

    /// How many of the smallest values satisfy a condition that no later one does.
    pub fn count_while(&self, condition: impl FnMut(&T) -> bool) -> usize {
        self.0.partition_point(condition)
    }

    /// All values in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.0.iter().copied()
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_order_wherever_they_come_and_leave() {
        let mut queue = SortedQueue::default();
        [5, 1, 9, 3, 7].into_iter().for_each(|value| queue.insert(value));
        assert_eq!((queue.remove(3), queue.remove(4)), (Some(3), None));
        queue.replace(Some(5), Some(8));
        queue.replace(Some(8), Some(8));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [1, 7, 8, 9]);
        assert_eq!((queue.count_while(|value| *value < 8), queue.first(), queue.get(3)), (2, Some(1), Some(9)));
    }
}
