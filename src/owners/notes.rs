//! What this thread holds by guards that stay on it, in the tables that ask: which are those of read/write locks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

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

impl Holdings {
    /// Whether this thread holds all keys in a way that conflicts with a request for one.
    pub(crate) fn forbid(self, mode: Mode) -> bool {
        self.writes_all || (self.reads_all && mode == Mode::Write)
    }
}

/// A note in 24 bytes: a thread may hold a million keys.
#[derive(Clone, Copy)]
struct Packed {
    /// The table and the mode. Not zero, so that there is room to say that a place is free.
    table_and_mode: NonZeroU64,
    hash: u64,
    id: u64,
}

/// The id of no slot.
const ALL_KEYS: u64 = u64::MAX;

impl Packed {
    #[inline]
    fn new(Note { table, mode, of }: Note) -> Self {
        let table_and_mode = NonZeroU64::MIN | table << 2 | (mode as u64) << 1;
        let (hash, id) = match of {
            Of::Key { hash, id } => (hash, id),
            Of::AllKeys => (0, ALL_KEYS),
        };
        Self { table_and_mode, hash, id }
    }

    fn note(self) -> Note {
        let table_and_mode = self.table_and_mode.get();
        let mode = if table_and_mode & 2 == (Mode::Read as u64) << 1 { Mode::Read } else { Mode::Write };
        let of = if self.id == ALL_KEYS { Of::AllKeys } else { Of::Key { hash: self.hash, id: self.id } };
        Note { table: table_and_mode >> 2, mode, of }
    }
}

/// Notes keep their places; those that are free are used again first.
struct Notes {
    notes: Vec<Option<Packed>>,
    free: Vec<u32>,
    /// Once there are many.
    index: Option<Box<Index>>,
}

/// The same notes, by what is asked of them. A few are looked through as fast.
#[derive(Default)]
struct Index {
    /// By table and mode: how many are of keys, and how many of all keys.
    tables: HashMap<(u64, Mode), [usize; 2]>,
    /// The ids of the slots.
    keys: HashSet<u64>,
    /// How many notes more there are of one slot.
    again: HashMap<u64, usize>,
}

/// Notes that are looked through one by one; more have an index.
const FEW: usize = 64;

/// Room that a thread keeps when it holds nothing any more.
const SPARE: usize = 1_024;

thread_local! {
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes::new()) };
}

impl Index {
    fn add(&mut self, note: Note) {
        self.tables.entry((note.table, note.mode)).or_default()[usize::from(note.of == Of::AllKeys)] += 1;
        if let Of::Key { id, .. } = note.of
            && !self.keys.insert(id)
        {
            *self.again.entry(id).or_default() += 1;
        }
    }

    fn remove(&mut self, note: Note) {
        if let Some(counts) = self.tables.get_mut(&(note.table, note.mode)) {
            counts[usize::from(note.of == Of::AllKeys)] -= 1;
            if *counts == [0; 2] {
                self.tables.remove(&(note.table, note.mode));
            }
        }
        if let Of::Key { id, .. } = note.of {
            match self.again.get_mut(&id) {
                None => drop(self.keys.remove(&id)),
                Some(1) => drop(self.again.remove(&id)),
                Some(again) => *again -= 1,
            }
        }
    }

    fn holdings(&self, table: u64) -> Holdings {
        let of = |mode| self.tables.get(&(table, mode)).copied().unwrap_or_default();
        let ([reads, reads_all], [writes, writes_all]) = (of(Mode::Read), of(Mode::Write));
        Holdings {
            any: reads + reads_all + writes + writes_all > 0,
            writes: writes > 0,
            reads_all: reads_all > 0,
            writes_all: writes_all > 0,
        }
    }
}

impl Notes {
    const fn new() -> Self {
        Self { notes: Vec::new(), free: Vec::new(), index: None }
    }

    #[inline]
    fn add(&mut self, note: Note) -> Place {
        if self.notes.len() >= FEW {
            self.add_to_index(note);
        }
        if let Some(place) = self.free.pop() {
            self.notes[place as usize] = Some(Packed::new(note));
            return Place(place);
        }
        let place = self.notes.len() as u32;
        if place == Place::NONE.0 {
            return Place::NONE;
        }
        self.notes.push(Some(Packed::new(note)));
        Place(place)
    }

    /// Before the note is added.
    #[cold]
    fn add_to_index(&mut self, note: Note) {
        let index = self.index.get_or_insert_with(|| {
            let mut index = Box::<Index>::default();
            self.notes.iter().flatten().for_each(|packed| index.add(packed.note()));
            index
        });
        index.add(note);
    }

    /// How a hold is changed, or ends.
    #[cold]
    fn change_index(&mut self, place: u32, becomes: Option<Mode>) {
        let (Some(index), Some(packed)) = (&mut self.index, self.notes[place as usize]) else { return };
        let note = packed.note();
        index.remove(note);
        if let Some(mode) = becomes {
            index.add(Note { mode, ..note });
        }
    }

    #[inline]
    fn remove(&mut self, place: u32) {
        if self.index.is_some() {
            self.change_index(place, None);
        }
        if place as usize + 1 == self.notes.len() {
            self.notes.pop();
        } else {
            self.notes[place as usize] = None;
            self.free.push(place);
        }
        if self.notes.len() == self.free.len() && (!self.free.is_empty() || self.index.is_some()) {
            self.forget_the_peak();
        }
    }

    /// What was noted at once, once, need not be looked through for ever.
    #[cold]
    fn forget_the_peak(&mut self) {
        self.index = None;
        self.notes.clear();
        self.free.clear();
        self.notes.shrink_to(SPARE);
        self.free.shrink_to(SPARE);
    }

    fn of(&self, table: u64) -> impl Iterator<Item = Note> {
        self.notes.iter().flatten().map(|packed| packed.note()).filter(move |note| note.table == table)
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
            let mut notes = notes.borrow_mut();
            notes.change_index(place.0, Some(mode));
            if let Some(packed) = &mut notes.notes[place.0 as usize] {
                *packed = Packed::new(Note { mode, ..packed.note() });
            }
        });
    }
}

/// What this thread holds of `table`.
pub(crate) fn holdings(table: u64) -> Holdings {
    if let Some(holdings) = indexed(|index| index.holdings(table)) {
        return holdings;
    }
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
    indexed(|index| index.keys.contains(&id))
        .unwrap_or_else(|| !visit(table, |note| !matches!(note.of, Of::Key { id: held, .. } if held == id)))
}

fn indexed<R>(read: impl FnOnce(&Index) -> R) -> Option<R> {
    NOTES.try_with(|notes| notes.borrow().index.as_deref().map(read)).ok().flatten()
}

/// Whether this thread holds anything in any table.
#[inline]
pub(crate) fn any() -> bool {
    NOTES.try_with(|notes| !notes.borrow().notes.is_empty()).unwrap_or(false)
}

/// Shows the notes of `table` to `go_on` until it says false; returns what it said last. It must not call this module.
pub(crate) fn visit(table: u64, mut go_on: impl FnMut(Note) -> bool) -> bool {
    NOTES.try_with(|notes| notes.borrow().of(table).all(&mut go_on)).unwrap_or(true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn key(table: u64, id: u64, mode: Mode) -> Note {
        Note { table, mode, of: Of::Key { hash: 7, id } }
    }

    #[test]
    fn what_is_packed_is_the_same_again() {
        let (table, hash, id) = (u64::MAX >> 2, u64::MAX, u64::MAX - 1);
        for mode in [Mode::Read, Mode::Write] {
            for of in [Of::AllKeys, Of::Key { hash, id }, Of::Key { hash: 0, id: 0 }] {
                for table in [0, 1, table] {
                    let note = Note { table, mode, of };
                    assert_eq!(Packed::new(note).note(), note);
                }
            }
        }
        assert_eq!(size_of::<Option<Packed>>(), 24);
    }

    #[test]
    fn one_key_can_be_noted_often() {
        let many: Vec<Place> = (100..100 + 2 * FEW as u64).map(|id| add(key(4, id, Mode::Read))).collect();
        let again = [(); 3].map(|()| add(key(4, 100, Mode::Read)));
        remove(many[0]);
        for place in again {
            assert!(holds(4, 100));
            remove(place);
        }
        assert!(!holds(4, 100) && holds(4, 101));
        many[1..].iter().for_each(|place| remove(*place));
        assert!(!any());
    }

    #[test]
    fn many_notes_say_the_same_as_few() {
        let many: Vec<Place> = (100..100 + 2 * FEW as u64).map(|id| add(key(3, id, Mode::Write))).collect();
        assert!(NOTES.with_borrow(|notes| notes.index.is_some()));
        notes_go_in_any_order_beside(many.len());
        assert_eq!(holdings(3), Holdings { any: true, writes: true, ..Holdings::default() });
        change(many[0], Mode::Read);
        let (read, written) = many.split_at(1);
        written.iter().for_each(|place| remove(*place));
        assert_eq!(holdings(3), Holdings { any: true, ..Holdings::default() });
        assert!(holds(3, 100) && !holds(3, 101));
        remove(read[0]);
        assert_eq!(holdings(3), Holdings::default());
        assert!(NOTES.with_borrow(|notes| notes.index.is_none()));
    }

    #[test]
    fn notes_go_in_any_order() {
        notes_go_in_any_order_beside(0);
        assert!(!any());
    }

    fn notes_go_in_any_order_beside(others: usize) {
        let places: Vec<Place> = (0..10).map(|id| add(key(1, id, Mode::Read))).collect();
        let other = add(key(2, 10, Mode::Write));
        let again = add(key(1, 4, Mode::Read));
        for round in [3, 0, 9, 5] {
            remove(places[round]);
            assert!(!holds(1, round as u64));
        }
        remove(again);
        assert!(holds(1, 4) && holds(2, 10) && !holds(1, 11));
        assert_eq!(holdings(1), Holdings { any: true, ..Holdings::default() });
        change(places[4], Mode::Write);
        assert_eq!(holdings(1), Holdings { any: true, writes: true, ..Holdings::default() });
        let all = add(Note { table: 1, mode: Mode::Read, of: Of::AllKeys });
        assert!(holdings(1).reads_all && !holdings(1).writes_all);
        for place in [1, 2, 4, 6, 7, 8].map(|place| places[place]).into_iter().chain([all, other]) {
            remove(place);
        }
        assert_eq!((holdings(1), holdings(2)), Default::default());
        assert_eq!(NOTES.with_borrow(|notes| notes.notes.len() - notes.free.len()), others);
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
