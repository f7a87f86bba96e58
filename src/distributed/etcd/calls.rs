//! What the servers do in one step. Each step can be repeated.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::distributed::store::Term;

use super::fault::{self, Effect, Fault};
use super::gateway::{Answer, Gateway, Said};
use super::keys::{self, KEPT, Keys};
use super::watch::Watched;
use super::wire::Request;

/// A place in the queue.
pub(super) struct Place {
    /// The revision in which the own key was made.
    pub(super) revision: u64,
    /// The keys that were made before, as the server spells them: of a lock the last of them, of permits all.
    pub(super) ahead: Vec<String>,
    /// The revision of what was looked at.
    pub(super) seen_at: u64,
}

/// A key, and what is in it.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: String,
    /// In which it was made.
    pub(super) revision: u64,
    /// What it lives under.
    pub(super) lease: u64,
}

/// A lease goes on.
pub(super) struct KeptAlive {
    pub(super) term: Term,
    /// Of which leader, as the one knew it who has answered.
    reign: u64,
}

/// What is seen of a claim.
pub(super) struct Seen {
    pub(super) is_there: bool,
    /// Under which leader.
    reign: u64,
}

/// So many keys come in one reply.
const PAGE: usize = 200;

impl Gateway {
    /// Makes a lease with that number, or goes on with the one there is. Whether a majority knows of the term.
    pub(super) fn grant(&self, lease: u64, ttl: Duration, until: Instant) -> Result<(Term, bool), Fault> {
        let body = json!({"ID": lease.to_string(), "TTL": seconds(ttl).to_string()});
        let Answer { asked, said, .. } =
            self.ask(&Request { path: "lease/grant", body, effect: Effect::Changes }, until)?;
        match said {
            Said::Yes(said) => {
                let granted = ttl_in(&said).ok_or_else(|| fault::of_reply(Effect::Changes))?;
                Ok((Term { asked, granted }, true))
            }
            // The reply to a try before was lost: what is left is not known.
            _ => {
                let kept = self.keep_alive(lease, until).map_err(Fault::half_done)?;
                kept.map(|kept| (kept.term, false))
                    .ok_or_else(|| Fault::transient("the lease has ended at once: is the server overloaded?"))
            }
        }
    }

    /// Another term, if the claim still has its key, and so its lease.
    ///
    /// A member that was the leader, and does not know yet that it is no more, renews leases for nobody. But to look at the key takes
    /// a majority: if that is of the same reign, so was the renewal.
    pub(super) fn renew(&self, keys: &Keys, until: Instant) -> Result<Option<Term>, Fault> {
        for _ in 0..2 {
            let Some(KeptAlive { term, reign }) = self.keep_alive(keys.lease, until)? else { return Ok(None) };
            // A lease lives on without its key, if somebody deletes that.
            let seen = self.see(keys, until)?;
            if !seen.is_there {
                return Ok(None);
            }
            if seen.reign == reign {
                return Ok(Some(term));
            }
        }
        Err(Fault::transient("another member has become the leader just now: it is not known to that yet"))
    }

    /// Another term, if there is such a lease: by a leader, or by one who was the leader.
    pub(super) fn keep_alive(&self, lease: u64, until: Instant) -> Result<Option<KeptAlive>, Fault> {
        let body = json!({"ID": lease.to_string()});
        // What it changes is only for how long the lease goes on.
        let request = Request { path: "lease/keepalive", body, effect: Effect::Looks };
        let Answer { asked, said, .. } = self.ask(&request, until)?;
        Ok(match said {
            Said::Yes(said) => {
                let reign = reign(&said)?;
                // Without a time it has ended.
                ttl_in(&said).map(|granted| KeptAlive { term: Term { asked, granted }, reign })
            }
            _ => None,
        })
    }

    /// Ends a lease, if there is one, and what lives under it, also what may come under it later.
    pub(super) fn revoke(&self, lease: u64, until: Instant) -> Result<(), Fault> {
        let body = json!({"ID": lease.to_string()});
        self.ask(&Request { path: "lease/revoke", body, effect: Effect::Changes }, until)?;
        Ok(())
    }

    /// For how long a lease goes on. `None` if it has ended.
    pub(super) fn time_left(&self, lease: u64, until: Instant) -> Result<Option<Duration>, Fault> {
        let body = json!({"ID": lease.to_string()});
        let answer = self.ask(&Request { path: "lease/timetolive", body, effect: Effect::Looks }, until)?;
        Ok(match answer.said {
            // Without a time less than a second is left.
            Said::Yes(said) if said["TTL"].is_null() => Some(Duration::ZERO),
            Said::Yes(said) => ttl_in(&said),
            _ => None,
        })
    }

    /// How many hold the name, or wait for it.
    pub(super) fn count(&self, keys: &Keys, until: Instant) -> Result<u64, Fault> {
        let mut body = range(&keys.all, Some(&keys::end_of(&keys.all)));
        body["count_only"] = true.into();
        let answer = self.ask(&Request { path: "kv/range", body, effect: Effect::Looks }, until)?;
        Ok(number(&yes(answer, Effect::Looks)?, "count").unwrap_or(0))
    }

    /// Makes the key, unless it was made by a try before, and looks what was made before it. `None` if the lease has ended.
    pub(super) fn enter(&self, keys: &Keys, limit: u32, until: Instant) -> Result<Option<Place>, Fault> {
        let put = json!({"key": encoded(&keys.own), "value": encoded(&keys.value), "lease": keys.lease.to_string()});
        let body = json!({
            "compare": [{"key": encoded(&keys.own), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}],
            "success": [{"request_put": put}, {"request_range": before(keys, limit, None)}],
            "failure": [{"request_range": range(&keys.own, None)}],
        });
        let answer = self.ask(&Request { path: "kv/txn", body, effect: Effect::Changes }, until)?;
        if matches!(answer.said, Said::NoLease) {
            return Ok(None);
        }
        let said = yes(answer, Effect::Changes)?;
        let senseless = || fault::of_reply(Effect::Changes);
        let seen_at = number(&said["header"], "revision").ok_or_else(senseless)?;
        if said["succeeded"].as_bool() == Some(true) {
            // What was made in this step is the own key.
            let ahead = spelled(&said["responses"][1]["response_range"], |revision| revision < seen_at);
            return Ok(Some(Place { revision: seen_at, ahead, seen_at }));
        }
        let own = found(&said["responses"][0]["response_range"]).pop().ok_or_else(senseless)?;
        self.look(keys, own.revision, limit, until).map_err(Fault::half_done)
    }

    /// What is before the own key. `None` if that is gone.
    pub(super) fn look(&self, keys: &Keys, revision: u64, limit: u32, until: Instant) -> Result<Option<Place>, Fault> {
        let ranges = [range(&keys.own, None), before(keys, limit, Some(revision))];
        let body = json!({"success": ranges.map(|range| json!({"request_range": range}))});
        let answer = self.ask(&Request { path: "kv/txn", body, effect: Effect::Looks }, until)?;
        let said = yes(answer, Effect::Looks)?;
        let seen_at = number(&said["header"], "revision").ok_or_else(|| fault::of_reply(Effect::Looks))?;
        let [own, ahead] = [0, 1].map(|number| &said["responses"][number]["response_range"]);
        let is_there = found(own).iter().any(|own| own.revision == revision);
        Ok(is_there.then(|| Place { revision, ahead: spelled(ahead, |_| true), seen_at }))
    }

    /// Whether the claim has its key.
    pub(super) fn see(&self, keys: &Keys, until: Instant) -> Result<Seen, Fault> {
        let request = Request { path: "kv/range", body: range(&keys.own, None), effect: Effect::Looks };
        let said = yes(self.ask(&request, until)?, Effect::Looks)?;
        let is_there = found(&said).iter().any(|own| own.value == keys.value);
        Ok(Seen { is_there, reign: reign(&said)? })
    }

    /// Has the key live under the other lease, for nobody, if the claim has it. Whether it had.
    pub(super) fn keep(&self, keys: &Keys, until: Instant) -> Result<Kept, Fault> {
        let put = json!({"key": encoded(&keys.own), "value": encoded(KEPT), "lease": keys.kept_lease.to_string()});
        let body = json!({
            "compare": [{"key": encoded(&keys.own), "target": "VALUE", "result": "EQUAL", "value": encoded(&keys.value)}],
            "success": [{"request_put": put}],
            "failure": [{"request_range": range(&keys.own, None)}],
        });
        let answer = self.ask(&Request { path: "kv/txn", body, effect: Effect::Changes }, until)?;
        let is_repeated = answer.is_repeated;
        if matches!(answer.said, Said::NoLease) {
            return Err(Fault::transient(
                "the lease to keep the key with has ended at once: is the server overloaded?",
            ));
        }
        let said = yes(answer, Effect::Changes)?;
        if said["succeeded"].as_bool() == Some(true) {
            return Ok(Kept::Now);
        }
        let is_kept = !found(&said["responses"][0]["response_range"]).is_empty();
        Ok(match (is_kept, is_repeated) {
            // By the try before.
            (true, true) => Kept::Now,
            (true, false) => Kept::Before,
            (false, _) => Kept::Never,
        })
    }

    /// Everything that begins so, by its name, as it was at one time.
    pub(super) fn list(&self, beginning: &str, within: Duration) -> Result<Vec<Entry>, Fault> {
        let (mut all, mut revision) = (Vec::new(), None);
        let (mut from, end) = (encoded(beginning), keys::end_of(beginning));
        loop {
            let mut body = json!({"key": from, "range_end": encoded(&end)});
            body["limit"] = PAGE.to_string().into();
            if let Some(revision) = revision {
                body["revision"] = u64::to_string(&revision).into();
            }
            let request = Request { path: "kv/range", body, effect: Effect::Looks };
            let said = yes(self.ask(&request, Instant::now() + within)?, Effect::Looks)?;
            revision = revision.or_else(|| number(&said["header"], "revision"));
            all.append(&mut found(&said));
            match spelled(&said, |_| true).pop().and_then(|last| STANDARD.decode(last).ok()) {
                // After the last one, whatever its name.
                Some(mut last) if said["more"].as_bool() == Some(true) => {
                    last.push(0);
                    from = STANDARD.encode(last);
                }
                _ => return Ok(all),
            }
        }
    }
}

/// Whether a key is kept for nobody.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    Now,
    /// It was before.
    Before,
    /// There is no such key.
    Never,
}

/// What wakes who waits at that place. `None` if nobody is before it.
pub(super) fn watched(keys: &Keys, place: &Place, limit: u32) -> Option<Watched> {
    let last = place.ahead.first()?;
    let mut create = match limit {
        // Of a lock the one before: so of all who wait one is woken.
        1 => json!({"key": last}),
        _ => range(&keys.all, Some(&keys::end_of(&keys.all))),
    };
    create["start_revision"] = (place.seen_at + 1).to_string().into();
    create["filters"] = json!(["NOPUT"]);
    let request = Request { path: "watch", body: json!({"create_request": create}), effect: Effect::Looks };
    Some(Watched { request, ahead: place.ahead.iter().cloned().collect(), enough: limit as usize - 1 })
}

/// What has to be asked to know the keys before one that was made in `revision`; or before one that is being made.
fn before(keys: &Keys, limit: u32, revision: Option<u64>) -> Value {
    let mut range = range(&keys.all, Some(&keys::end_of(&keys.all)));
    range["keys_only"] = true.into();
    range["sort_target"] = "CREATE".into();
    range["sort_order"] = "DESCEND".into();
    if let Some(revision) = revision {
        range["max_create_revision"] = (revision - 1).to_string().into();
    }
    if limit == 1 {
        // The last of them; and the own one, which is made in the same step.
        range["limit"] = if revision.is_some() { "1" } else { "2" }.into();
    }
    range
}

fn range(key: &str, end: Option<&str>) -> Value {
    match end {
        Some(end) => json!({"key": encoded(key), "range_end": encoded(end)}),
        None => json!({"key": encoded(key)}),
    }
}

fn yes(answer: Answer, effect: Effect) -> Result<Value, Fault> {
    match answer.said {
        Said::Yes(said) => Ok(said),
        _ => Err(fault::of_reply(effect)),
    }
}

/// The keys in a reply. Those that are no text are nobody's.
fn found(range: &Value) -> Vec<Entry> {
    let entries = range["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let entry = |entry: &Value| {
        let revision = number(entry, "create_revision")?;
        let lease = number(entry, "lease").unwrap_or_default();
        Some(Entry { key: decoded(&entry["key"])?, value: decoded(&entry["value"])?, revision, lease })
    };
    entries.iter().filter_map(entry).collect()
}

/// The keys in a reply, as the server spells them: also those that are no text, as they have places in the queue too.
fn spelled(range: &Value, is_meant: impl Fn(u64) -> bool) -> Vec<String> {
    let entries = range["kvs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let meant = entries.iter().filter(|entry| number(entry, "create_revision").is_some_and(&is_meant));
    meant.filter_map(|entry| Some(entry["key"].as_str()?.to_owned())).collect()
}

fn encoded(text: &str) -> String {
    STANDARD.encode(text)
}

/// What is empty is left out.
fn decoded(text: &Value) -> Option<String> {
    String::from_utf8(STANDARD.decode(text.as_str().unwrap_or_default()).ok()?).ok()
}

/// Numbers of 64 bits are written as texts.
fn number(value: &Value, name: &str) -> Option<u64> {
    value[name].as_str().map_or_else(|| value[name].as_u64(), |text| text.parse().ok())
}

/// Each leader has a number of its own, which rises: a term of Raft.
fn reign(said: &Value) -> Result<u64, Fault> {
    number(&said["header"], "raft_term").ok_or_else(|| fault::of_reply(Effect::Looks))
}

/// Negative, or left out, if there is no such lease.
fn ttl_in(said: &Value) -> Option<Duration> {
    number(said, "TTL").map(Duration::from_secs)
}

/// Of a duration, rounded up; at least one.
fn seconds(duration: Duration) -> u64 {
    (duration.as_secs() + u64::from(duration.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        for (ms, whole) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(seconds(Duration::from_millis(ms)), whole);
        }
    }

    #[test]
    fn numbers_are_texts_or_left_out() {
        let said = json!({"TTL": "7", "count": 3, "negative": "-1"});
        assert_eq!((ttl_in(&said), number(&said, "count")), (Some(Duration::from_secs(7)), Some(3)));
        assert_eq!((number(&said, "negative"), number(&said, "missing")), (None, None));
    }

    #[test]
    fn keys_are_found_and_spelled_again() {
        let said = json!({"kvs": [
            {"key": "YQ==", "create_revision": "5", "value": "bGltaXQgMQ=="},
            {"key": "Yg==", "create_revision": "6"},
            {"key": "/w==", "create_revision": "7"},
        ]});
        let found = found(&said);
        let seen: Vec<_> = found.iter().map(|entry| (&*entry.key, &*entry.value, entry.revision)).collect();
        assert_eq!(seen, [("a", "limit 1", 5), ("b", "", 6)]);
        assert_eq!(spelled(&said, |_| true), ["YQ==", "Yg==", "/w=="]);
        assert_eq!(spelled(&said, |revision| revision < 6), ["YQ=="]);
    }
}
