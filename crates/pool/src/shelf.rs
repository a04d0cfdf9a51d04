//! Free blocks of one size, in lists by the stream that they were freed on.

/// A list for each stream, last used first. Blocks that any stream may use are in the list of `u64::MAX`.
#[derive(Debug)]
pub(crate) struct Shelf<T> {
    lists: Vec<(u64, Vec<T>)>,
}

impl<T: Copy> Shelf<T> {
    pub(crate) const fn new() -> Self {
        Self { lists: Vec::new() }
    }

    /// The list of a stream, if it has one.
    pub(crate) fn find(&mut self, stream: u64) -> Option<&mut Vec<T>> {
        let at = self.lists.iter().position(|(of, _)| *of == stream)?;
        if at > 0 {
            self.lists.swap(0, at);
        }
        Some(&mut self.lists[0].1)
    }

    /// The list of a stream, perhaps a new one.
    pub(crate) fn list(&mut self, stream: u64) -> &mut Vec<T> {
        let at = self.lists.iter().position(|(of, _)| *of == stream);
        let at = at.unwrap_or_else(|| {
            self.lists.push((stream, Vec::new()));
            self.lists.len() - 1
        });
        if at > 0 {
            self.lists.swap(0, at);
        }
        &mut self.lists[0].1
    }

    /// Removes a value from the list of a stream, by its position. Returns the value that has that position now.
    pub(crate) fn remove(&mut self, stream: u64, at: usize) -> Option<T> {
        let list = self.find(stream)?;
        list.swap_remove(at);
        list.get(at).copied()
    }

    /// Removes the values that are chosen from all lists, and empty lists.
    pub(crate) fn extract(&mut self, mut chosen: impl FnMut(u64, &T) -> bool) -> Vec<T> {
        let mut extracted = Vec::new();
        for (of, list) in &mut self.lists {
            let of = *of;
            extracted.extend(list.extract_if(.., |value| chosen(of, value)));
        }
        self.lists.retain(|(_, list)| !list.is_empty());
        extracted
    }

    /// Calls `visit` with each value, its list and its position there.
    pub(crate) fn for_each_at(&self, mut visit: impl FnMut(u64, usize, &T)) {
        for (of, list) in &self.lists {
            for (at, value) in list.iter().enumerate() {
                visit(*of, at, value);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lists.iter().all(|(_, list)| list.is_empty())
    }
}
