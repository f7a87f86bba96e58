//! Who holds what through one session.
//!
//! PostgreSQL grants a session what it holds already: so it must not be asked. A number is in the book from before the server is
//! asked for it until it has been given back, or the session is over.

use std::collections::{HashMap, HashSet};

use crate::distributed::lost::Lost;
use crate::distributed::store::{Claim, OwnerId};

use super::numbers;

#[derive(Default)]
pub(super) struct Book {
    /// Asked for or held.
    numbers: HashSet<i64>,
    holds: HashMap<OwnerId, Hold>,
    is_over: bool,
}

/// What an owner holds.
#[derive(Clone)]
pub(super) struct Hold {
    pub(super) number: i64,
    pub(super) channel: i64,
    lost: Lost,
    /// The server is asked to free it.
    is_ending: bool,
}

/// What is known of an owner.
pub(super) enum Entry {
    Held(Hold),
    /// It is being given back.
    Ending,
    None,
}

impl Book {
    /// Those of the numbers that nobody holds or asks for: now this does.
    pub(super) fn reserve(&mut self, numbers: impl IntoIterator<Item = i64>) -> Vec<i64> {
        numbers.into_iter().filter(|number| self.numbers.insert(*number)).collect()
    }

    /// Of these, one was granted to the claim, or none. Whether the session still holds it.
    pub(super) fn conclude(&mut self, asked: &[i64], granted: Option<(&Claim, i64)>) -> bool {
        let kept = granted.filter(|_| !self.is_over);
        for number in asked.iter().filter(|number| kept.is_none_or(|(_, kept)| kept != **number)) {
            self.numbers.remove(number);
        }
        if let Some((claim, number)) = kept {
            let channel = numbers::of_channel(claim);
            let hold = Hold { number, channel, lost: claim.lost().clone(), is_ending: false };
            self.holds.insert(claim.owner(), hold);
        }
        kept.is_some()
    }

    pub(super) fn find(&self, owner: OwnerId) -> Entry {
        match self.holds.get(&owner) {
            Some(hold) if hold.is_ending => Entry::Ending,
            Some(hold) => Entry::Held(hold.clone()),
            None => Entry::None,
        }
    }

    /// As [`find`](Self::find), and what is held is being given back from now on.
    pub(super) fn begin_end(&mut self, owner: OwnerId) -> Entry {
        let entry = self.find(owner);
        if let Some(hold) = self.holds.get_mut(&owner) {
            hold.is_ending = true;
        }
        entry
    }

    /// It was given back, or not.
    pub(super) fn end(&mut self, owner: OwnerId, is_free: bool) {
        if let Some(hold) = self.holds.get_mut(&owner) {
            hold.is_ending = false;
            if is_free {
                let number = hold.number;
                self.holds.remove(&owner);
                self.numbers.remove(&number);
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// The session is gone: nothing is held, and nothing will be. Whom that has to be said.
    pub(super) fn close(&mut self) -> Vec<Lost> {
        self.is_over = true;
        self.numbers.clear();
        self.holds.drain().filter(|(_, hold)| !hold.is_ending).map(|(_, hold)| hold.lost).collect()
    }
}
