//! The colours of points, and the legend that explains them.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::projection::Projection;
use super::shades::Shade;
use super::svg::{escaped, short};
use crate::text::human;

/// The hues of neighbouring variants are this far apart, in degrees: the golden angle separates any number of them.
const GOLDEN_ANGLE: f64 = 137.508;
/// The hues of the smallest and the largest number.
const SMALL: f64 = 250.0;
const LARGE: f64 = 30.0;
/// The number of variants in a legend.
const NAMED: usize = 24;

/// The colours of the points of a projection.
pub(super) struct Colors {
    /// The smallest and the largest finite number.
    range: Option<(f64, f64)>,
    /// The variants that occur: their places and names.
    variants: BTreeMap<usize, String>,
}

impl Colors {
    pub(super) fn of(projection: &Projection) -> Self {
        let (mut range, mut variants) = (None, BTreeMap::new());
        for value in projection.points.iter().filter_map(|point| point.value.as_ref()) {
            match value {
                Shade::Variant(name, at) => drop(variants.insert(*at, name.clone())),
                Shade::Number(number) => {
                    let number = number.as_f64();
                    if number.is_finite() {
                        let (min, max) = range.unwrap_or((number, number));
                        range = Some((f64::min(min, number), f64::max(max, number)));
                    }
                }
            }
        }
        Self { range, variants }
    }

    /// The attribute of a point with this value; empty for points without a value.
    pub(super) fn style(&self, value: Option<&Shade>) -> String {
        let hue = match (value, self.range) {
            (Some(Shade::Variant(_, at)), _) => hue_of(*at),
            (Some(Shade::Number(number)), Some((min, max))) if number.as_f64().is_finite() => {
                let share = if max > min { (number.as_f64() - min) / (max - min) } else { 0.0 };
                SMALL + share * (LARGE - SMALL)
            }
            _ => return String::new(),
        };
        format!(" style=\"fill:{}\"", color(hue))
    }

    /// What the colours mean; empty if no point has a value.
    pub(super) fn legend(&self, name: &str) -> String {
        let name = escaped(name);
        let mut text = format!("<p class=\"note\">Colours: {name}");
        match self.range {
            Some((min, max)) => {
                let (small, large) = (swatch(SMALL), swatch(LARGE));
                let _ = write!(text, " {small}{} to {large}{}", short(min), short(max));
            }
            None if self.variants.is_empty() => return String::new(),
            None => {}
        }
        for (at, variant) in self.variants.iter().take(NAMED) {
            let _ = write!(text, " {}{}", swatch(hue_of(*at)), escaped(variant));
        }
        if let Some(more @ 1..) = self.variants.len().checked_sub(NAMED) {
            let _ = write!(text, " and {} more", human::count(more as u64));
        }
        text + "</p>\n"
    }
}

fn hue_of(variant: usize) -> f64 {
    (210.0 + variant as f64 * GOLDEN_ANGLE) % 360.0
}

fn color(hue: f64) -> String {
    format!("hsl({hue:.0} 62% 50%)")
}

fn swatch(hue: f64) -> String {
    format!("<span class=\"swatch\" style=\"background:{}\"></span>", color(hue))
}
