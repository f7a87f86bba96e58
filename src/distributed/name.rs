//! What a key is called outside the process.

use std::fmt;

/// A key in its namespace, as a [`Store`](super::Store) sees it.
///
/// Where an engine takes any string as a name, the store uses namespace and key as they are. Where it takes a number or a
/// short name (lock files, PostgreSQL), it uses [`hash`](Self::hash), which is the same in every version and on every machine.
///
/// # Examples
///
/// ```
/// use perkey::distributed::Name;
///
/// let name = Name::new("billing", "account-42");
/// assert_eq!((name.namespace(), name.key()), ("billing", "account-42"));
/// assert_eq!(name.to_string(), "billing/account-42");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    namespace: String,
    key: String,
}

const OFFSET_BASIS: u64 = 0xCBF2_9CE4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01B3;

impl Name {
    /// A key in its namespace.
    #[must_use]
    pub fn new(namespace: impl Into<String>, key: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), key: key.into() }
    }

    /// What separates the keys of one purpose from those of others in the same store.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The key that was asked for.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// 64 bits by FNV-1a, over the bytes of the namespace, a byte `0xFF`, which no string contains, and the bytes of the key.
    ///
    /// That is no secret: who chooses keys can choose two with one hash. A store by hash must find that out, or say what it
    /// does then. Of names that nobody chose so, a million have two that meet with a chance of 1 in 37 million.
    ///
    /// The algorithm is Fowler, Noll and Vo's, in the 64-bit variant `1a`.
    ///
    /// # Examples
    ///
    /// Vectors, for programs in other languages that shall meet this one:
    ///
    /// ```
    /// use perkey::distributed::Name;
    ///
    /// assert_eq!(Name::new("", "").hash(), 0xAF64_724C_8602_EB6E);
    /// assert_eq!(Name::new("perkey", "").hash(), 0x4065_3C39_D0DD_AE74);
    /// assert_eq!(Name::new("perkey", "a").hash(), 0x49B3_6B3D_E8AE_CDAF);
    /// assert_eq!(Name::new("perkey", "nightly-report").hash(), 0x47B4_443B_A28A_6F46);
    /// assert_eq!(Name::new("billing", "Zürich 🚋").hash(), 0x1335_B5F1_6F15_0E3E);
    /// ```
    #[must_use]
    pub fn hash(&self) -> u64 {
        hash_on(OFFSET_BASIS, self.namespace.bytes().chain([0xFF]).chain(self.key.bytes()))
    }
}

/// The hash of what was hashed so far, and of these bytes after it.
pub(super) fn hash_on(hash: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.key)
    }
}
