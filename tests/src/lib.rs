//! Whole-system tests of tcx: what a user's program sees.
