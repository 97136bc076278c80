//! Nothing: the package consists of its test.
