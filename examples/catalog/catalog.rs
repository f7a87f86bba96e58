//! The catalog, and the locks around it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perkey::{Fairness, KeyedRwLock, Options};

use super::cli::Rebuild;

/// Products by number, and what guards them.
pub(crate) struct Catalog {
    locks: KeyedRwLock<u32>,
    // All of it is read and written by plain loads and stores, as rows of a database would be. The atomics keep this free of
    // `unsafe`; that nobody sees one store without the other is up to the locks alone.
    version: AtomicU64,
    products: Box<[Product]>,
}

/// What the price and the discount add up to depends on the version that the product is of.
struct Product {
    version: AtomicU64,
    price: AtomicU64,
    discount: AtomicU64,
    /// How often it was written, by a load and a later store.
    writes: AtomicU64,
}

/// How often the catalog was seen in a state that it never should be in, and what was seen first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) count: u64,
    pub(crate) first: Option<String>,
}

impl Faults {
    /// Notes a fault, if that was one.
    pub(crate) fn note(&mut self, outcome: Result<(), String>) {
        if let Err(fault) = outcome {
            self.count += 1;
            self.first.get_or_insert(fault);
        }
    }

    pub(crate) fn add(&mut self, later: Self) {
        self.count += later.count;
        self.first = self.first.take().or(later.first);
    }
}

fn list_price(product: u32, version: u64) -> u64 {
    1_000 + u64::from(product) + 10 * version
}

impl Catalog {
    /// A catalog in version 0.
    pub(crate) fn new(products: u32, fairness: Fairness) -> Self {
        let product = |number| Product {
            version: AtomicU64::new(0),
            price: AtomicU64::new(list_price(number, 0)),
            discount: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        };
        Self {
            locks: KeyedRwLock::with_options(Options::new().fairness(fairness).name("catalog")),
            version: AtomicU64::new(0),
            products: (0..products).map(product).collect(),
        }
    }

    pub(crate) fn products(&self) -> u32 {
        self.products.len() as u32
    }

    /// Reads a product, beside all others who read it.
    pub(crate) fn read(&self, product: u32) -> Result<(), String> {
        let _reading = self.locks.read(&product);
        self.look_at(product).map(drop)
    }

    /// Gives a product another discount, alone with it. `work` is done in the middle.
    pub(crate) fn write(&self, product: u32, discount: u64, work: impl FnOnce()) -> Result<(), String> {
        let _writing = self.locks.write(&product);
        let list_price = self.look_at(product)?;
        let row = &self.products[product as usize];
        let writes = load(&row.writes);
        let discount = discount % list_price;
        store(&row.price, list_price - discount);
        work();
        store(&row.discount, discount);
        store(&row.writes, writes + 1);
        Ok(())
    }

    /// Adds up all list prices, while nobody writes and everybody may read.
    pub(crate) fn sum(&self) -> Result<(), String> {
        let _reading = self.locks.read_all();
        let version = load(&self.version);
        let mut sum = 0;
        for product in 0..self.products() {
            sum += self.look_at(product)?;
        }
        let right: u64 = (0..self.products()).map(|product| list_price(product, version)).sum();
        if sum == right { Ok(()) } else { Err(format!("the sum of version {version} was {sum}, not {right}")) }
    }

    /// Makes the next version of every product, with `work` half way. Returns how long it waited to be let in, once or (key by
    /// key) at most.
    pub(crate) fn rebuild(&self, how: Rebuild, work: impl FnOnce()) -> Duration {
        match how {
            Rebuild::WriteAll => {
                let asked = Instant::now();
                let _everything = self.locks.write_all();
                let waited = asked.elapsed();
                self.build(work, |_, build| build());
                waited
            }
            Rebuild::KeyByKey => {
                let mut longest = Duration::ZERO;
                self.build(work, |product, build| {
                    let asked = Instant::now();
                    let _writing = self.locks.write(&product);
                    longest = longest.max(asked.elapsed());
                    build();
                });
                longest
            }
            Rebuild::WithoutLock => {
                self.build(work, |_, build| build());
                Duration::ZERO
            }
        }
    }

    fn build(&self, work: impl FnOnce(), mut each: impl FnMut(u32, &dyn Fn())) {
        let version = load(&self.version) + 1;
        store(&self.version, version);
        let build = |product: u32| {
            let row = &self.products[product as usize];
            store(&row.version, version);
            store(&row.discount, 0);
            // As if the price came from elsewhere: somebody else may run now.
            if product.is_multiple_of(64) {
                thread::yield_now();
            }
            store(&row.price, list_price(product, version));
        };
        let half = self.products() / 2;
        (0..half).for_each(|product| each(product, &|| build(product)));
        work();
        (half..self.products()).for_each(|product| each(product, &|| build(product)));
    }

    /// The list price of a product, if it is whole and of the catalog's version.
    fn look_at(&self, product: u32) -> Result<u64, String> {
        let row = &self.products[product as usize];
        let (catalog, version) = (load(&self.version), load(&row.version));
        if version != catalog {
            return Err(format!("product {product} was of version {version} in a catalog of version {catalog}"));
        }
        let (price, discount) = (load(&row.price), load(&row.discount));
        let right = list_price(product, version);
        if price + discount != right {
            let was = format!("product {product} of version {version} was {price} and {discount} off");
            return Err(format!("{was}, of {right}"));
        }
        Ok(right)
    }

    /// Looks at what is left when nobody uses the catalog any more.
    pub(crate) fn judge_end(&self, writes: u64, rebuilds: u64) -> Faults {
        let mut faults = Faults::default();
        faults.note(self.sum());
        let version = load(&self.version);
        if version != rebuilds {
            faults.note(Err(format!("the last version was {version}, after {rebuilds} rebuilds")));
        }
        let counted: u64 = self.products.iter().map(|product| load(&product.writes)).sum();
        if counted != writes {
            faults.note(Err(format!("{counted} writes were kept, of {writes}")));
        }
        if !self.locks.is_empty() {
            faults.note(Err(format!("{} locks were left", self.locks.len())));
        }
        faults
    }
}

// `Relaxed` is enough: it is the locks that make what one thread wrote visible to the next.
fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

fn store(number: &AtomicU64, value: u64) {
    number.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen half way through a rebuild by somebody who does not wait for it.
    fn half_built(how: Rebuild) -> (Catalog, Vec<Result<(), String>>) {
        let catalog = Catalog::new(3, Fairness::Fifo);
        let mut seen = Vec::new();
        catalog.rebuild(how, || seen = vec![catalog.read(0), catalog.read(2), catalog.sum()]);
        (catalog, seen)
    }

    #[test]
    fn a_half_built_catalog_is_seen_by_readers_and_sums() {
        for how in [Rebuild::KeyByKey, Rebuild::WithoutLock] {
            let (catalog, seen) = half_built(how);
            let fault = || Err("product 2 was of version 0 in a catalog of version 1".to_owned());
            assert_eq!(seen[0], Ok(()), "{how:?}: the first one is built");
            assert_eq!(seen[1], fault(), "{how:?}");
            // The sum stops at the first that is wrong.
            assert_eq!(seen[2], Err("product 1 was of version 0 in a catalog of version 1".to_owned()), "{how:?}");
            assert_eq!(catalog.judge_end(0, 1).first, None, "{how:?}: it is whole in the end");
        }
    }

    #[test]
    fn half_a_write_is_seen() {
        let catalog = Catalog::new(1, Fairness::Fifo);
        let mut seen = None;
        catalog.write(0, 7, || seen = Some(catalog.look_at(0))).unwrap();
        assert_eq!(seen, Some(Err("product 0 of version 0 was 993 and 0 off, of 1000".to_owned())));
        assert_eq!(catalog.read(0), Ok(()));
    }

    #[test]
    fn while_all_is_rebuilt_every_product_is_locked() {
        let catalog = Catalog::new(3, Fairness::Fifo);
        let mut locked = None;
        catalog.rebuild(Rebuild::WriteAll, || locked = Some((0..3).all(|key| catalog.locks.is_write_locked(&key))));
        assert_eq!(locked, Some(true));
        assert_eq!(catalog.judge_end(0, 1).count, 0);
    }

    #[test]
    fn what_is_missing_at_the_end_is_named() {
        let catalog = Catalog::new(3, Fairness::Fifo);
        catalog.write(1, 5, || ()).unwrap();
        assert_eq!(catalog.judge_end(1, 0).first, None);
        assert_eq!(catalog.judge_end(2, 0).first.as_deref(), Some("1 writes were kept, of 2"));
        assert_eq!(catalog.judge_end(1, 3).first.as_deref(), Some("the last version was 0, after 3 rebuilds"));
    }

    #[test]
    fn the_first_fault_is_the_one_to_read() {
        let mut faults = Faults::default();
        for outcome in [Ok(()), Err("one".to_owned()), Err("two".to_owned())] {
            faults.note(outcome);
        }
        let mut all = Faults::default();
        all.add(faults);
        all.add(Faults { count: 1, first: Some("three".to_owned()) });
        assert_eq!((all.count, all.first.as_deref()), (3, Some("one")));
    }
}
