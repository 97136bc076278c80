//! One line beside the message of a `forward` that panics: the module and the samples that it computed.

use std::io::Write;
use std::thread::panicking;

use tcx_store::has_listener;

/// How many samples are named.
const NAMED: usize = 3;

/// A `forward` that is running. Dropped by a panic of it, it reports the line; the panic goes on as it is.
pub(crate) struct Running<'a> {
    module: &'static str,
    samples: usize,
    /// The id of a sample.
    named: &'a dyn Fn(usize) -> String,
    /// It was called while this thread was unwinding already: that panic is not its own.
    was_panicking: bool,
}

impl<'a> Running<'a> {
    pub(crate) fn new(module: &'static str, samples: usize, named: &'a dyn Fn(usize) -> String) -> Self {
        Self { module, samples, named, was_panicking: panicking() }
    }

    fn line(&self) -> String {
        let Self { module, samples, named, .. } = self;
        let names: Vec<String> = (0..*samples).take(NAMED).map(named).collect();
        let more = match samples.saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("`forward` of module `{module}` panicked on a batch of {samples}: {}{more}", names.join(", "))
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.was_panicking || !panicking() {
            return;
        }
        let line = self.line();
        if has_listener() {
            tracing::error!(module = self.module, "{line}");
        } else {
            // Beside the message of the panic. Where stderr is closed, nothing can be said.
            let _ = std::io::stderr().write_all(format!("tcx: {line}\n").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_module_the_number_of_samples_and_the_first_ids() {
        let named = |sample: usize| format!("\"{sample}.png\"");
        let line = |samples| Running::new("m_v1", samples, &named).line();
        assert_eq!(line(1), r#"`forward` of module `m_v1` panicked on a batch of 1: "0.png""#);
        let first = r#""0.png", "1.png", "2.png""#;
        assert_eq!(line(3), format!("`forward` of module `m_v1` panicked on a batch of 3: {first}"));
        assert!(line(64).ends_with(&format!("of 64: {first} and 61 more")));
    }
}
