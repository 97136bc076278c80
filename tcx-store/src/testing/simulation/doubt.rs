//! What a process may have missed: rows that it does not find for such a reason are not lost.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};

#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// The last listing, or a segment of it, was not as it is.
    is_faulty: AtomicBool,
    is_misled: AtomicBool,
    /// The last listing that has succeeded was late or incomplete.
    is_listing_faulty: AtomicBool,
    /// How often one was.
    faulty_listings: AtomicUsize,
    /// Since the last listing began, which reads it again, a change could not be read.
    is_change_unread: AtomicBool,
    /// How often one could not.
    unread_changes: AtomicUsize,
    /// A page of the listing under way was late or incomplete.
    is_page_late: AtomicBool,
}

impl Doubt {
    /// A listing begins, with a fault or without.
    pub(super) fn list(&self, is_faulty: bool) {
        self.is_faulty.store(is_faulty, SeqCst);
        self.is_change_unread.store(false, SeqCst);
    }

    /// It has succeeded.
    pub(super) fn listed(&self, is_faulty: bool) {
        self.is_faulty.fetch_or(is_faulty, SeqCst);
        self.is_listing_faulty.store(is_faulty, SeqCst);
        self.faulty_listings.fetch_add(usize::from(is_faulty), SeqCst);
    }

    /// A page of a listing is late or incomplete.
    pub(super) fn list_late(&self) {
        self.is_page_late.store(true, SeqCst);
    }

    /// Whether one was since this was asked.
    pub(super) fn was_listed_late(&self) -> bool {
        self.is_page_late.swap(false, SeqCst)
    }

    /// A segment was opened, with a fault or without; `is_gone` says that there is no such segment.
    pub(super) fn opened(&self, is_faulty: bool, is_gone: bool) {
        self.is_faulty.fetch_or(is_faulty, SeqCst);
        self.is_misled.fetch_or(is_gone && self.is_faulty.load(SeqCst), SeqCst);
    }

    /// Rows that exist cannot be seen.
    pub(super) fn mislead(&self) {
        self.is_misled.store(true, SeqCst);
    }

    pub(super) fn did_not_read_change(&self) {
        self.is_change_unread.store(true, SeqCst);
        self.unread_changes.fetch_add(1, SeqCst);
    }

    /// Whether a segment has gone since this was asked, while its successor could not be seen.
    pub(super) fn was_misled(&self) -> bool {
        self.is_misled.swap(false, SeqCst)
    }

    /// Whether a change could not be read lately, and how often that was so.
    pub(super) fn unread_changes(&self) -> (bool, usize) {
        (self.is_change_unread.load(SeqCst), self.unread_changes.load(SeqCst))
    }

    /// Whether the last listing was late or incomplete, and how often one was.
    pub(super) fn faulty_listings(&self) -> (bool, usize) {
        (self.is_listing_faulty.load(SeqCst), self.faulty_listings.load(SeqCst))
    }
}
