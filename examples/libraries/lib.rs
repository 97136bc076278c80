//! Empty: this package consists of its examples.
