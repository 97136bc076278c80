//! What users read: errors, reports and documents.

mod documents;
mod errors;
mod unheard;
