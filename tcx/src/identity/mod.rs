//! The identity of a module, gathered from its fields: readable entries for the store, and the weights to watch.

pub(crate) mod frozen;
pub(crate) mod same_name;
pub(crate) mod sources;
pub(crate) mod stateless;
pub(crate) mod type_names;
pub(crate) mod watch;

use std::fmt;
use std::sync::Arc;

use tcx_store::StampType;

use crate::identity::sources::Sources;
use crate::identity::stateless::Stateless;
use crate::identity::watch::{Weight, WeightWatch};
use crate::tensor::Device;

/// Longer values are entered as their hash and their length.
const LONGEST_VALUE: usize = 200;

/// Longer sequences are entered as their hash and their length.
const MOST_ITEMS: usize = 64;

/// What decides the outputs of a module, as entries of a path and a value.
///
/// [`Stateless::identity`] feeds it. The derives do so field by field; written by hand, an implementation
/// enters everything that can change an output:
///
/// ```
/// use tcx::{Identity, Stateless};
///
/// /// Keeps its threshold as a string, for reasons of its own.
/// struct Threshold(String);
///
/// impl Stateless for Threshold {
///     fn identity(&self, identity: &mut Identity) {
///         identity.type_name("Threshold");
///         identity.field("percent", &self.0);
///     }
/// }
///
/// let identity = Identity::of(&Threshold("50".to_owned()));
/// assert_eq!(identity.to_string(), "self = Threshold\npercent = \"50\"");
/// ```
#[derive(Debug, Default)]
pub struct Identity {
    entries: Vec<(String, String)>,
    /// The entries of the modules that the inputs come from.
    upstream: Vec<(String, String)>,
    /// The weights behind their rows.
    pub(crate) before: Vec<Arc<Sources>>,
    /// The modules among them whose ids have stamps.
    stamped: Vec<(&'static str, StampType)>,
    path: String,
    device: Option<Device>,
    watch: WeightWatch,
    /// Values that are entered as a hash, in full.
    long: Vec<(String, String)>,
    /// The name of a type that is entered by it, if another type of the program has that name too.
    ambiguous: Option<&'static str>,
}

impl Identity {
    /// The identity of a value: of a module, to see what its cache depends on.
    pub fn of<T: Stateless + ?Sized>(value: &T) -> Self {
        let mut identity = Self::default();
        identity.enter(value);
        identity
    }

    /// The entries of the value itself: path and value.
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    /// Enters the name of the value's type.
    pub fn type_name(&mut self, name: &str) {
        self.value(name);
    }

    /// Enters the value of a constant parameter of the value's type.
    pub fn const_parameter<T: Stateless>(&mut self, name: &str, value: &T) {
        let name = format!("{}<{name}>", if self.path.is_empty() { "self" } else { "" });
        self.at(&name, |identity| value.identity(identity));
    }

    /// Enters the type that stands for a parameter of the value's type. Its name includes its module: two
    /// types of one name may compute different things, and nothing else distinguishes them.
    pub fn type_parameter<T: ?Sized>(&mut self, name: &str) {
        let name = format!("{}<{name}>", if self.path.is_empty() { "self" } else { "" });
        self.distinguish(std::any::type_name::<T>(), typeid::of::<T>());
        self.at(&name, |identity| identity.value(type_names::type_name::<T>()));
    }

    /// Enters a field, by its name.
    pub fn field<T: Stateless + ?Sized>(&mut self, name: &str, value: &T) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.at(&format!("{dot}{name}"), |identity| identity.enter(value));
    }

    /// Enters a value; that of a trait object with the path of its type, which is nowhere else. Of all others the name
    /// is enough, since the types of a module's fields are part of its code.
    pub(crate) fn enter<T: Stateless + ?Sized>(&mut self, value: &T) {
        let (own, of) = value.__tcx_type();
        if own != std::any::type_name::<T>() {
            self.distinguish(own, of);
            let name = if self.path.is_empty() { "self<dyn>" } else { "<dyn>" };
            self.at(name, |identity| identity.value(type_names::first_written(own)));
        }
        value.identity(self);
    }

    /// Enters a part, by its name: a field of an output.
    #[doc(hidden)]
    pub fn part(&mut self, name: &str, enter: impl FnOnce(&mut Self)) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.at(&format!("{dot}{name}"), enter);
    }

    /// Enters the value itself, as text that differs whenever the value does.
    pub fn value(&mut self, value: impl fmt::Display) {
        let mut value = value.to_string();
        if value.len() > LONGEST_VALUE {
            value = format!("{}, {} bytes", digest([value.as_str()]), value.len());
        }
        let path = if self.path.is_empty() { "self" } else { &self.path };
        self.entries.push((path.to_owned(), value));
    }

    /// Enters a value that other programs want in full, also if it is too long for an entry.
    pub(crate) fn list(&mut self, value: String) {
        if value.len() > LONGEST_VALUE {
            self.long.push((self.path.clone(), value.clone()));
        }
        self.value(value);
    }

    /// The lists that `describe` enters as a hash, in full, for the provenance: no part of the identity.
    pub(crate) fn long_lists(describe: fn(&mut Self)) -> Vec<(String, String)> {
        let mut output = Self::default();
        output.part("Output", describe);
        output.long
    }

    /// Enters the values of a sequence whose order matters.
    pub fn sequence<'a, T: Stateless + 'a>(&mut self, items: impl ExactSizeIterator<Item = &'a T>) {
        let (start, len) = (self.entries.len(), items.len());
        let count = if len == 1 { "1 item".to_owned() } else { format!("{len} items") };
        self.value(&count);
        for (index, item) in items.enumerate() {
            let name = format!("{}[{index}]", if self.path.is_empty() { "self" } else { "" });
            self.at(&name, |identity| item.identity(identity));
        }
        if self.entries.len() - start > MOST_ITEMS {
            let digest = digest(self.entries.drain(start..).flat_map(|(path, value)| [path, value]));
            self.value(format_args!("{count}, {digest}"));
        }
    }

    /// Enters frozen weights, and watches them from now on.
    pub(crate) fn weights(&mut self, fingerprint: &str, device: &Device, weights: &[Weight]) {
        self.device.get_or_insert_with(|| device.clone());
        self.unbuilt_weights(fingerprint);
        for weight in weights {
            let dot = if self.path.is_empty() || weight.name.is_empty() { "" } else { "." };
            let name = format!("{}{dot}{}", self.path, weight.name);
            self.watch.add(weight.named(name));
        }
    }

    /// Enters the weights of a network that is not built yet.
    pub(crate) fn unbuilt_weights(&mut self, fingerprint: &str) {
        let dot = if self.path.is_empty() { "" } else { "." };
        self.at(&format!("{dot}weights"), |identity| identity.value(fingerprint));
    }

    /// The device of the first frozen weights.
    pub(crate) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// For the store of a module whose outputs `describe` enters.
    pub(crate) fn to_store(&self, describe: fn(&mut Self)) -> tcx_store::Identity {
        let mut output = Self::default();
        output.part("Output", describe);
        self.entries.iter().chain(&output.entries).chain(&self.upstream).cloned().collect()
    }

    pub(crate) fn add_upstream(
        &mut self,
        entries: impl Iterator<Item = (String, String)>,
        sources: &Arc<Sources>,
    ) {
        self.upstream.extend(entries);
        self.before.push(sources.clone());
    }

    /// The inputs come from a module whose ids have such stamps.
    pub(crate) fn add_stamped(&mut self, module: &'static str, stamps: StampType) {
        self.stamped.push((module, stamps));
    }

    /// A module that the inputs come from, and whose stamps are not `own`.
    pub(crate) fn stamped_otherwise(&self, own: Option<StampType>) -> Option<(&'static str, StampType)> {
        self.stamped.iter().copied().find(|(_, stamps)| Some(*stamps) != own)
    }

    /// The entries, and those of the modules that the inputs come from.
    pub(crate) fn all_entries(&self) -> Vec<(String, String)> {
        [self.entries.as_slice(), &self.upstream].concat()
    }

    /// The weights to watch.
    pub(crate) fn into_watch(self) -> WeightWatch {
        self.watch
    }

    fn at(&mut self, name: &str, enter: impl FnOnce(&mut Self)) {
        let parent = self.path.len();
        self.path.push_str(name);
        enter(self);
        self.path.truncate(parent);
    }
}

/// One entry a line, as in the refusal of a cache that belongs to another identity.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (path, value)) in self.entries.iter().chain(&self.upstream).enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{path} = {value}")?;
        }
        Ok(())
    }
}

/// The hash of some texts: they cannot be split differently and give the same.
fn digest<S: AsRef<str>>(texts: impl IntoIterator<Item = S>) -> String {
    let mut hasher = blake3::Hasher::new();
    for text in texts {
        let text = text.as_ref();
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    format!("blake3:{}", hasher.finalize())
}

/// A string in quotation marks; control characters are escaped, so that an entry stays one line.
///
/// Not `{:?}`: what that escapes depends on the Unicode tables of the compiler.
pub(crate) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_ascii_control() => quoted.extend(c.escape_default()),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
