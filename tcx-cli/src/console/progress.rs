//! Progress bars on standard error, if it is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

const BYTES: &str = "{msg} {wide_bar} {bytes}/{total_bytes} {eta}";
const ROWS: &str = "{msg} {wide_bar} {human_pos}/{human_len} {eta}";

/// A bar that counts bytes.
pub(crate) fn bytes(what: impl Into<String>) -> ProgressBar {
    bar(what.into(), BYTES, 0)
}

/// A bar that counts rows.
pub(crate) fn rows(what: impl Into<String>, total: u64) -> ProgressBar {
    bar(what.into(), ROWS, total)
}

fn bar(what: String, template: &str, total: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style).with_message(what)
}

/// Shows the number of bytes read and the total in a bar.
pub(crate) fn follow(bar: &ProgressBar) -> impl FnMut(u64, u64) + '_ {
    move |read, total| {
        bar.set_length(total);
        bar.set_position(read);
    }
}
