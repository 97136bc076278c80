//! Empty: this package consists of its test.
