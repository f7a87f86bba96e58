//! Integration tests, one module per subject.

mod smoke;
