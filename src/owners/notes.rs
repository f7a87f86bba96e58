//! What this thread holds by guards that stay on it, in the tables that ask: which are those of read/write locks.

use std::cell::RefCell;

use crate::mode::Mode;
use crate::sync::thread_local;

/// One hold of this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// A number that the table has to itself.
    pub(crate) table: u64,
    pub(crate) mode: Mode,
    pub(crate) of: Of,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Key { hash: u64, id: u64 },
    AllKeys,
}

/// Where a note is, so that its guard finds it again: the guards of a thread go in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    /// Of what is not noted.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// What a thread holds of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Anything at all.
    pub(crate) any: bool,
    /// A key for writing.
    pub(crate) writes: bool,
    /// All keys for reading.
    pub(crate) reads_all: bool,
    /// All keys for writing.
    pub(crate) writes_all: bool,
}

/// Notes keep their places; those that are free are used again first.
struct Notes {
    notes: Vec<Option<Note>>,
    free: Vec<u32>,
}

/// Room that a thread keeps when it holds nothing any more.
const SPARE: usize = 1_024;

thread_local! {
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes { notes: Vec::new(), free: Vec::new() }) };
}

impl Notes {
    #[inline]
    fn add(&mut self, note: Note) -> Place {
        if let Some(place) = self.free.pop() {
            self.notes[place as usize] = Some(note);
            return Place(place);
        }
        let place = self.notes.len() as u32;
        if place == Place::NONE.0 {
            return Place::NONE;
        }
        self.notes.push(Some(note));
        Place(place)
    }

    #[inline]
    fn remove(&mut self, place: u32) {
        if place as usize + 1 == self.notes.len() {
            self.notes.pop();
        } else {
            self.notes[place as usize] = None;
            self.free.push(place);
        }
        if self.notes.len() == self.free.len() && !self.free.is_empty() {
            self.forget_the_peak();
        }
    }

    /// What was noted at once, once, need not be looked through for ever.
    #[cold]
    fn forget_the_peak(&mut self) {
        self.notes.clear();
        self.free.clear();
        self.notes.shrink_to(SPARE);
        self.free.shrink_to(SPARE);
    }

    fn of(&self, table: u64) -> impl Iterator<Item = &Note> {
        self.notes.iter().flatten().filter(move |note| note.table == table)
    }
}

/// Notes a hold. Past the end of the thread's thread-locals nothing is noted.
#[inline]
pub(crate) fn add(note: Note) -> Place {
    NOTES.try_with(|notes| notes.borrow_mut().add(note)).unwrap_or(Place::NONE)
}

#[inline]
pub(crate) fn remove(place: Place) {
    if place != Place::NONE {
        // Nothing is left to do past the thread-local's end.
        let _ = NOTES.try_with(|notes| notes.borrow_mut().remove(place.0));
    }
}

/// Notes that what is noted at `place` is held in another way now.
pub(crate) fn change(place: Place, mode: Mode) {
    if place != Place::NONE {
        let _ = NOTES.try_with(|notes| {
            if let Some(note) = &mut notes.borrow_mut().notes[place.0 as usize] {
                note.mode = mode;
            }
        });
    }
}

/// What this thread holds of `table`.
pub(crate) fn holdings(table: u64) -> Holdings {
    let mut holdings = Holdings::default();
    visit(table, |note| {
        holdings.any = true;
        match (note.of, note.mode) {
            (Of::Key { .. }, Mode::Read) => {}
            (Of::Key { .. }, Mode::Write) => holdings.writes = true,
            (Of::AllKeys, Mode::Read) => holdings.reads_all = true,
            (Of::AllKeys, Mode::Write) => holdings.writes_all = true,
        }
        true
    });
    holdings
}

/// Whether this thread holds the key whose slot has the id `id`, which no other slot of the process has.
pub(crate) fn holds(table: u64, id: u64) -> bool {
    !visit(table, |note| !matches!(note.of, Of::Key { id: held, .. } if held == id))
}

/// Whether this thread holds anything in any table.
#[inline]
pub(crate) fn any() -> bool {
    NOTES.try_with(|notes| !notes.borrow().notes.is_empty()).unwrap_or(false)
}

/// Shows the notes of `table` to `go_on` until it says false; returns what it said last. It must not call this module.
pub(crate) fn visit(table: u64, mut go_on: impl FnMut(&Note) -> bool) -> bool {
    NOTES.try_with(|notes| notes.borrow().of(table).all(&mut go_on)).unwrap_or(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(table: u64, id: u64, mode: Mode) -> Note {
        Note { table, mode, of: Of::Key { hash: 7, id } }
    }

    #[test]
    fn notes_go_in_any_order() {
        let places: Vec<Place> = (0..10).map(|id| add(key(1, id, Mode::Read))).collect();
        let other = add(key(2, 10, Mode::Write));
        for round in [3, 0, 9, 5] {
            remove(places[round]);
            assert!(!holds(1, round as u64));
        }
        assert!(holds(1, 4) && holds(2, 10) && !holds(1, 10));
        assert_eq!(holdings(1), Holdings { any: true, ..Holdings::default() });
        change(places[4], Mode::Write);
        assert_eq!(holdings(1), Holdings { any: true, writes: true, ..Holdings::default() });
        let all = add(Note { table: 1, mode: Mode::Read, of: Of::AllKeys });
        assert!(holdings(1).reads_all && !holdings(1).writes_all);
        for place in [1, 2, 4, 6, 7, 8].map(|place| places[place]).into_iter().chain([all, other]) {
            remove(place);
        }
        assert!(!any());
        assert_eq!((holdings(1), holdings(2)), Default::default());
    }

    #[test]
    fn places_are_used_again_and_a_peak_is_forgotten() {
        let (first, second) = (add(key(1, 0, Mode::Read)), add(key(1, 1, Mode::Read)));
        remove(first);
        assert_eq!(add(key(1, 2, Mode::Read)), first);
        remove(first);
        remove(second);
        let places: Vec<Place> = (0..10 * SPARE as u64).map(|id| add(key(1, id, Mode::Read))).collect();
        places.into_iter().for_each(remove);
        NOTES.with_borrow(|notes| {
            assert!(notes.notes.is_empty() && notes.free.is_empty());
            assert!(notes.notes.capacity() <= 2 * SPARE, "{}", notes.notes.capacity());
        });
    }
}
