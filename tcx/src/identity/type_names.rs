//! The names that types have in identities: `std::any::type_name`, except that a type of tcx keeps the path under which its
//! first caches were written. Otherwise a file that is moved or a type that is renamed here would empty its users' caches.

use std::ops::Range;

/// What paths begin with today, and what they began with in version 0.1. A longer one comes before those that it begins with.
const MOVED: &[(&str, &str)] = &[
    ("tcx::cache::builder::", "tcx::builder::"),
    ("tcx::cache::coverage::", "tcx::coverage::"),
    ("tcx::cache::mode::", "tcx::mode::"),
    ("tcx::cached::fields::", "tcx::fields::"),
    ("tcx::cached::keyed::", "tcx::keyed::"),
    ("tcx::cached::verify::report::Mismatch", "tcx::verify::Different"),
    ("tcx::cached::verify::report::VerifyReport", "tcx::verify::Verified"),
    ("tcx::cached::view::", "tcx::view::"),
    ("tcx::cached::warm::WarmReport", "tcx::warm::Warmed"),
    ("tcx::identity::frozen::", "tcx::frozen::"),
    ("tcx::identity::stateless::", "tcx::stateless::"),
    ("tcx::ids::content::", "tcx::content::"),
    ("tcx::ids::stamp::", "tcx::stamp::"),
    ("tcx::ids::", "tcx::id::"),
    ("tcx::module::batch::", "tcx::batch::"),
    ("tcx::module::extractor::", "tcx::extractor::"),
    ("tcx::module::missing::", "tcx::missing::"),
    ("tcx::output::leaf::ragged::Ragged", "tcx::tensor::packed::Packed"),
    ("tcx::output::leaf::varying::Varying", "tcx::tensor::ragged::Ragged"),
    ("tcx::output::leaf::", "tcx::tensor::"),
    ("tcx::output::part::", "tcx::part::"),
    ("tcx::output::skipped::", "tcx::skipped::"),
    ("tcx::output::typed::", "tcx::typed::"),
    ("tcx::output::value::", "tcx::value::"),
    ("tcx_store::computed::attestation::", "tcx_store::attestation::"),
    ("tcx_store::computed::losses::", "tcx_store::losses::"),
    ("tcx_store::computed::recompute::RecomputeSession", "tcx_store::replacer::Replacer"),
    ("tcx_store::inspect::other_files::", "tcx_store::other_files::"),
    ("tcx_store::inspect::rows::", "tcx_store::rows::"),
    ("tcx_store::inspect::verify::VerifyReport", "tcx_store::verify::Verified"),
    ("tcx_store::inspect::verify::", "tcx_store::verify::"),
    ("tcx_store::options::compression::", "tcx_store::options::"),
    ("tcx_store::read::destination::", "tcx_store::destination::"),
    ("tcx_store::read::lookup::", "tcx_store::lookup::"),
    ("tcx_store::schema::column::", "tcx_store::column::"),
    ("tcx_store::schema::identity::", "tcx_store::identity::"),
    ("tcx_store::schema::key::", "tcx_store::key::"),
    ("tcx_store::schema::leaf::", "tcx_store::schema::"),
    ("tcx_store::schema::spec::", "tcx_store::spec::"),
    ("tcx_store::schema::stamp::", "tcx_store::stamp::"),
    ("tcx_store::stats::Timings", "tcx_store::stats::Times"),
    ("tcx_store::stats::causes::", "tcx_store::causes::"),
    ("tcx_store::sys::fork::", "tcx_store::fork::"),
];

/// Types that have parameters for the types of their tensors since more libraries than one are known, by the ends of their names,
/// and how many other parameters come before. Rows do not depend on the library, and neither do identities.
const OF_TENSORS: &[(&str, usize)] = &[("tcx::typed::Typed", 2), ("tcx::tensor::packed::Packed", 0)];

/// The name of a type in an identity.
pub(crate) fn type_name<T: ?Sized>() -> String {
    first_written(std::any::type_name::<T>())
}

/// The name that a type whose name is `name` today had when the first caches were written.
pub(crate) fn first_written(name: &str) -> String {
    let (mut first, mut rest) = (String::with_capacity(name.len()), name);
    // A path begins where no other one goes on: `my_tcx::ids::Id` is not a type of tcx.
    let mut begins = true;
    while let Some(c) = rest.chars().next() {
        let moved = MOVED.iter().find(|(today, _)| begins && rest.starts_with(today));
        if let Some((today, then)) = moved {
            first.push_str(then);
            rest = &rest[today.len()..];
            begins = false;
            continue;
        }
        begins = !continues_path(c);
        first.push(c);
        rest = &rest[c.len_utf8()..];
    }
    without_tensors(first)
}

/// Leaves out the parameters of these types that are types of tensors.
fn without_tensors(mut name: String) -> String {
    for (of, kept) in OF_TENSORS {
        let mut from = 0;
        while let Some(at) = name[from..].find(of).map(|at| from + at) {
            from = at + of.len();
            let begins = name[..at].chars().next_back().is_none_or(|c| !continues_path(c));
            if let Some(removed) = parameters(&name[from..], *kept).filter(|_| begins) {
                name.replace_range(
                    from + removed.start..from + removed.end,
                    if *kept > 0 { ">" } else { "" },
                );
            }
        }
    }
    name
}

/// Where, in a text that begins with a list of parameters, those behind the first `kept` are, with the brackets that then have to go.
fn parameters(list: &str, kept: usize) -> Option<Range<usize>> {
    if !list.starts_with('<') {
        return None;
    }
    let (mut depth, mut commas) = (0_usize, 0);
    let mut start = (kept == 0).then_some(0);
    for (at, c) in list.char_indices() {
        match c {
            '<' | '(' | '[' => depth += 1,
            // The end of an arrow.
            '>' if list[..at].ends_with('-') => {}
            '>' | ')' | ']' => depth -= 1,
            ',' if depth == 1 => commas += 1,
            _ => {}
        }
        if start.is_none() && kept > 0 && commas == kept {
            start = Some(at);
        }
        if depth == 0 {
            return Some(start?..at + 1);
        }
    }
    None
}

fn continues_path(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
#[cfg(feature = "tch")]
mod tests {
    use std::marker::PhantomData;

    use super::*;
    use crate::{self as tcx, Extractor, Identity, Stateless};

    /// As version 0.1 wrote them.
    macro_rules! assert_names {
        ($($of:ty => $name:literal,)*) => {$(
            assert_eq!(type_name::<$of>(), $name);
        )*};
    }

    #[test]
    fn a_type_of_tcx_keeps_the_name_that_it_had_in_identities() {
        assert_names! {
            tcx::Cache => "tcx::cache::Cache",
            tcx::CacheBuilder => "tcx::builder::CacheBuilder",
            tcx::Cached<()> => "tcx::cached::Cached<()>",
            tcx::ContentId => "tcx::content::ContentId",
            tcx::Coverage => "tcx::coverage::Coverage",
            tcx::D0 => "tcx::typed::D0",
            tcx::D1<2> => "tcx::typed::D1<2>",
            tcx::D5<1, 2, 3, 4, 5> => "tcx::typed::D5<1, 2, 3, 4, 5>",
            tcx::Mismatch<i64> => "tcx::verify::Different<i64>",
            tcx::Error => "tcx::error::Error",
            tcx::ErrorKind => "tcx::error::ErrorKind",
            tcx::Fields<'static, (), ()> => "tcx::fields::Fields<'_, (), ()>",
            tcx::Frozen<tch::nn::Linear> => "tcx::frozen::Frozen<tch::nn::linear::Linear>",
            tcx::Identity => "tcx::identity::Identity",
            tcx::Missing<'static, i64> => "tcx::missing::Missing<'_, i64>",
            tcx::Mode => "tcx::mode::Mode",
            tcx::Ragged => "tcx::tensor::packed::Packed",
            tcx::StampedTable<()> => "tcx::table::Table<(), tcx::stamp::Stamped<tcx::id::StringIds, u64>>",
            tcx::Table<()> => "tcx::table::Table<()>",
            tcx::TableBuilder<()> => "tcx::table::builder::TableBuilder<()>",
            tcx::Typed<f32, tcx::D1<8>> => "tcx::typed::Typed<f32, tcx::typed::D1<8>>",
            tcx::VerifyReport<i64> => "tcx::verify::Verified<i64>",
            tcx::View<'static, ()> => "tcx::view::View<'_, ()>",
            tcx::WarmReport => "tcx::warm::Warmed",
            tcx::Weights => "tcx::frozen::weights::Weights",
            tcx::Stats => "tcx_store::stats::Stats",
            tcx::WhenFull => "tcx_store::options::WhenFull",
            tcx::Compression => "tcx_store::options::Compression",
            tcx::OnMismatch => "tcx_store::options::OnMismatch",
            tcx::Eviction => "tcx_store::options::eviction::Eviction",
            tcx::BackgroundPriority => "tcx_store::options::BackgroundPriority",
            tcx::MemoryCachePolicy => "tcx_store::options::MemoryCachePolicy",
            tcx::Settings => "tcx::cache::settings::Settings",
            tcx::RowFacts => "tcx_store::store::describe::RowFacts",
            tcx::DiskUsage => "tcx_store::stats::DiskUsage",
            tcx::MissCauses => "tcx_store::causes::MissCauses",
            tcx::ReadMode => "tcx_store::options::ReadMode",
            tcx::TierCounts => "tcx_store::stats::TierCounts",
            tcx::Tiers => "tcx_store::stats::Tiers",
            tcx::Timings => "tcx_store::stats::Times",
            (tcx::__private::StringIds, tcx::__private::I64Ids, tcx::__private::BytesIds) => "(tcx::id::StringIds, tcx::id::I64Ids, tcx::id::BytesIds)",
            tcx::__private::Dense<f32, tcx::D0> => "tcx::tensor::Dense<f32, tcx::typed::D0>",
            tcx::__private::Varying<f32, tcx::D0> => "tcx::tensor::ragged::Ragged<f32, tcx::typed::D0>",
            tcx::__private::OutputPart<()> => "tcx::part::OutputPart<()>",
            tcx::__private::TensorPart<(), ()> => "tcx::part::TensorPart<(), ()>",
            tcx::__private::SkippedPart<()> => "tcx::part::SkippedPart<()>",
            dyn Extractor<Input = (), Output = Vec<i64>> => "dyn tcx::extractor::Extractor<Input = (), Output = alloc::vec::Vec<i64>>",
        }
    }

    #[test]
    fn only_paths_of_tcx_are_those_of_earlier() {
        assert_eq!(first_written("my::tcx::ids::Id"), "my::tcx::ids::Id");
        assert_eq!(first_written("my_tcx::ids::Id<tcx::ids::Id>"), "my_tcx::ids::Id<tcx::id::Id>");
        assert_eq!(first_written("&tcx::ids::Id"), "&tcx::id::Id");
    }

    #[test]
    fn the_library_of_a_tensor_is_in_no_name() {
        struct Other<T>(PhantomData<T>);
        assert_names! {
            tcx::Typed<f32, tcx::D2<3, 4>, Other<(u8, fn(i8) -> u8)>> => "tcx::typed::Typed<f32, tcx::typed::D2<3, 4>>",
            (tcx::Ragged<Other<u8>, Other<u8>>, u8) => "(tcx::tensor::packed::Packed, u8)",
            Vec<tcx::Ragged> => "alloc::vec::Vec<tcx::tensor::packed::Packed>",
            Vec<tcx::Typed<u8, tcx::D0, tcx::Ragged<u8>>> => "alloc::vec::Vec<tcx::typed::Typed<u8, tcx::typed::D0>>",
        }
        assert_eq!(first_written("my::tcx::typed::Typed<A, B, C>"), "my::tcx::typed::Typed<A, B, C>");
        assert_eq!(
            first_written("tcx::output::typed::TypedOther<A, B, C>"),
            "tcx::typed::TypedOther<A, B, C>"
        );
    }

    trait Step: Stateless {}

    impl<T: Stateless> Step for T {}

    #[test]
    fn every_way_into_an_identity_takes_the_name_of_earlier() {
        type Marker = PhantomData<tcx::Typed<f32, tcx::D0>>;
        let name = "core::marker::PhantomData<tcx::typed::Typed<f32, tcx::typed::D0>>";
        let mut identity = Identity::default();
        identity.type_parameter::<Marker>("T");
        let step: &dyn Step = &Marker::default();
        identity.field("step", step);
        let entries = [
            ("self<T>", name),
            ("step<dyn>", name),
            ("step", "PhantomData<tcx::typed::Typed<f32, tcx::typed::D0>>"),
        ];
        let entries = entries.map(|(path, value)| (path.to_owned(), value.to_owned()));
        assert_eq!(identity.entries(), entries);
    }
}
