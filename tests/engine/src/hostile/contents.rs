//! Files whose checksums are right, and whose contents no store has written.

use arrow_ipc::{Block, FieldBuilder, FooterBuilder, MetadataVersion, SchemaBuilder};
use flatbuffers::FlatBufferBuilder;

use super::{Place, Rows, Trap, trap};
use crate::Dice;
use crate::forge::{self, ForgedSegment};

const TOMBSTONE: u32 = 1;
const MERGED: u32 = 2;

pub(super) fn traps() -> Vec<Trap> {
    let mut traps = vec![
        trap("a segment that stands for a file outside", Rows::Kept, inputs_outside),
        trap("a footer as deep as it can be", Rows::Kept, |place| put_footer(place, &nested(5000, 1))),
        trap("a footer that leads to everything many times", Rows::Kept, |place| {
            put_footer(place, &nested(60, 10));
        }),
        trap("a footer of blocks everywhere", Rows::Kept, |place| put_footer(place, &blocks_everywhere())),
        trap("a footer of lengths that lead out of it", Rows::Kept, |place| put_footer(place, &[255; 4096])),
        trap("merged changes of the last number there is", Rows::Kept, |place| merged(place, u64::MAX)),
        trap("merged changes of the last number but one", Rows::Right, |place| merged(place, u64::MAX - 1)),
        trap("a run of more than it holds", Rows::Kept, endless_run),
    ];
    let tables: [(&str, [u64; 4]); 4] = [
        ("more entries than bytes", [0, 1, u64::MAX / 24, 0]),
        ("more lengths than bytes", [0, 1, 0, u64::MAX / 2]),
        ("a tombstone of the future", [u64::MAX, u64::MAX, 0, 0]),
        ("a million lengths", [0, 1, 0, 1_000_000]),
    ];
    for (name, numbers) in tables {
        traps.push(trap(format!("a change with {name}"), Rows::Right, move |place| {
            let payload = table(numbers);
            place.put("change-00000000000000000001", &forge::change(1, TOMBSTONE, [1; 16], &payload));
        }));
    }
    traps
}

/// A table of tombstones with this header, and zeros behind it.
fn table(numbers: [u64; 4]) -> Vec<u8> {
    let mut payload: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    payload.resize(32 + 2 * usize::try_from(numbers[3]).unwrap_or(0).min(1_000_000), 0);
    payload
}

fn merged(place: &Place, number: u64) {
    let name = format!("merged-{number:020}");
    place.put(&name, &forge::change(number, MERGED, place.instance(), &table([0, 0, 0, 0])));
}

/// It says that it has been made of something that lies outside.
fn inputs_outside(place: &Place) {
    let mut joined = place.joined();
    let input = joined.text_behind("seg-", 55);
    let wanted = "../../outside/folder/../secret";
    joined.replace(&format!("seg-{input}"), &format!("{wanted:/<59}"));
    let (name, bytes) = joined.seal();
    place.put(&name, &bytes);
}

fn put_footer(place: &Place, footer: &[u8]) {
    let (name, bytes) = forge::segment(&[b"ARROW1\0\0", &[0; 4096][..]].concat(), footer);
    place.put(&name, &bytes);
}

/// A schema of fields in fields; each has the same field this many times.
fn nested(depth: usize, width: usize) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let mut field = FieldBuilder::new(&mut builder).finish();
    for _ in 0..depth {
        let children = builder.create_vector(&vec![field; width]);
        let mut parent = FieldBuilder::new(&mut builder);
        parent.add_children(children);
        field = parent.finish();
    }
    let fields = builder.create_vector(&[field]);
    let mut schema = SchemaBuilder::new(&mut builder);
    schema.add_fields(fields);
    let schema = schema.finish();
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_schema(schema);
    let footer = footer.finish();
    builder.finish(footer, None);
    builder.finished_data().to_vec()
}

fn blocks_everywhere() -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let ends = [0, 8, 64, i64::from(i32::MAX), i64::MAX, i64::MIN, -1];
    let metas = [0, 8, i32::MAX, i32::MIN, -1];
    let blocks: Vec<Block> = ends
        .iter()
        .flat_map(|&offset| {
            metas.iter().flat_map(move |&meta| ends.map(|body| Block::new(offset, meta, body)))
        })
        .collect();
    let blocks = builder.create_vector(&blocks);
    let mut footer = FooterBuilder::new(&mut builder);
    footer.add_version(MetadataVersion::V5);
    footer.add_recordBatches(blocks);
    let footer = footer.finish();
    builder.finish(footer, None);
    builder.finished_data().to_vec()
}

/// Its header promises what is not there.
fn endless_run(place: &Place) {
    let (name, valid) = place.read("run-").swap_remove(0);
    for (at, number) in [(12, u32::MAX.into()), (16, u64::MAX), (24, u64::MAX / 12), (32, u64::MAX - 63)] {
        let mut bytes = valid.clone();
        bytes[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        if at > 12 {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let header = bytes.len().min(128);
        forge::seal_end(&mut bytes[..header]);
        place.put(&name.replacen(|c: char| c.is_ascii_hexdigit(), &format!("{:x}", at % 16), 5), &bytes);
    }
}

/// What is changed at random.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Segment,
    Run,
    Change,
    Merged,
}

/// A file with some of its bytes changed, and its checksums right again.
pub(super) fn forgery(dice: &mut Dice) -> Trap {
    let kind = [Kind::Segment, Kind::Run, Kind::Change, Kind::Merged][dice.roll(4)];
    let seed = dice.roll(usize::MAX) as u64 | 1;
    let rows = if matches!(kind, Kind::Segment) { Rows::MadeUp } else { Rows::Right };
    trap(format!("a forged {kind:?}, seed {seed}"), rows, move |place| {
        let mut dice = Dice(seed);
        match kind {
            Kind::Segment => {
                let segments = place.read("seg-");
                let mut forged = ForgedSegment::of(segments[dice.roll(segments.len())].1.clone());
                change(&mut forged.bytes, &mut dice);
                let (name, bytes) = forged.seal();
                place.put(&name, &bytes);
            }
            Kind::Run => {
                let (name, mut bytes) = place.read("run-").swap_remove(0);
                change(&mut bytes, &mut dice);
                let _ = forge::seal_run(&mut bytes);
                place.put(&name, &bytes);
            }
            Kind::Change | Kind::Merged => {
                let mut payload = table([0, 1, 2, 2]);
                payload.extend((0..120).map(|at: u8| at.wrapping_mul(37)));
                change(&mut payload, &mut dice);
                let (number, kind, name) = match kind {
                    Kind::Merged => (dice.roll(3) as u64, MERGED, "merged"),
                    _ => (1, TOMBSTONE, "change"),
                };
                let bytes = forge::change(number, kind, place.instance(), &payload);
                place.put(&format!("{name}-{number:020}"), &bytes);
            }
        }
    })
}

/// Changes some bytes in their places: single bits, and whole numbers.
fn change(bytes: &mut [u8], dice: &mut Dice) {
    for _ in 0..=dice.roll(6) {
        let at = dice.roll(bytes.len());
        let number = [0, 1, 1 << 31, (1 << 32) - 1, 1 << 62, u64::MAX][dice.roll(6)];
        match dice.roll(3) {
            0 => bytes[at] ^= 1 << dice.roll(8),
            1 => bytes.iter_mut().skip(at & !7).zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new),
            _ => bytes
                .iter_mut()
                .skip(at & !3)
                .zip((number as u32).to_le_bytes())
                .for_each(|(byte, new)| *byte = new),
        }
    }
}
