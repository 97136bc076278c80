//! Flips bits and cuts files in a large cache with files of every kind.

use tcx_engine_tests::Dice;
use tcx_engine_tests::damage::{Campaign, Damage, Effect};
use tcx_store::Compression;

use crate::arguments::Arguments;
use crate::budget::Budget;
use crate::outcome::Outcome;

/// Rows of a part of the cache, and how many are looked for after each damage: a small cache is damaged more often.
const SIZES: [(usize, usize); 3] = [(200, 50), (2_000, 100), (20_000, 100)];

pub(crate) fn run(budget: &Budget, _: &Arguments, outcome: &mut Outcome) {
    let mut dice = Dice(0xdead);
    let each = budget.count(100_000) / SIZES.len();
    for (size, (rows, sample)) in SIZES.into_iter().enumerate() {
        let end = budget.time() * (SIZES.len() - 1 - size) as u32 / SIZES.len() as u32;
        let campaign = Campaign::new(rows, sample, Compression::None);
        outcome.tried(campaign.look_undamaged(&mut dice));
        for _ in 0..each {
            let file = dice.roll(campaign.files());
            let damage = Damage::anywhere(&mut dice, campaign.len(file));
            let (effect, findings) = campaign.damage(file, damage, &mut dice);
            outcome.tried(findings);
            let name = match effect {
                Effect::None => "without effect",
                Effect::Misses(_) => "misses",
                Effect::Closed => "closed",
            };
            outcome.count(name, 1);
            if budget.left() <= end {
                break;
            }
        }
        outcome.tried(campaign.look_undamaged(&mut dice));
        outcome.figure("files", campaign.files());
    }
}
