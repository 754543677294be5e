//! Any `adapt` block that a file could make, and whatever routes adapt.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::subsequence;
use weir_config::*;

use super::time;

pub(crate) fn adapt() -> impl Strategy<Value = Adapt> {
    let memory = (64_u64 << 20..=64 << 30, 64_u64 << 10..=64 << 20);
    let numbers = (option::of(0_usize..=256), 1_usize..=100_000);
    let adapt = (numbers, memory, time(100, 600_000), any::<bool>()).prop_map(
        |((helpers, queue), (memory, output), time, idle)| Adapt {
            helpers,
            queue,
            memory,
            output,
            time,
            priority: if idle { AdaptPriority::Idle } else { AdaptPriority::Normal },
        },
    );
    prop_oneof![1 => Just(Adapt::default()), 4 => adapt]
}

pub(crate) fn route() -> impl Strategy<Value = RouteAdapt> {
    option::of(compress()).prop_map(|compress| RouteAdapt { compress })
}

fn compress() -> impl Strategy<Value = Compress> {
    let formats = subsequence(&Coding::ALL[..], 1..=3).prop_shuffle();
    let formats = formats.prop_flat_map(|codings| {
        let formats: Vec<_> = codings.into_iter().map(format).collect();
        formats
    });
    let rest = (0_u64..=1 << 30, time(0, 60_000));
    (formats, types(), rest).prop_map(|(formats, types, (min_size, wait))| Compress {
        formats,
        types,
        min_size,
        wait,
    })
}

fn format(coding: Coding) -> impl Strategy<Value = CompressFormat> {
    let (least, most) = coding.levels();
    let own =
        (least..=most).prop_map(move |level| CompressFormat { coding, level, level_large: level });
    prop_oneof![Just(CompressFormat::new(coding)), own]
}

fn types() -> impl Strategy<Value = MediaTypes> {
    let name =
        prop_oneof!["[a-z]{1,4}/[a-z.+-]{1,6}", "[a-z]{1,4}/[a-z]{0,3}[*]", "[*][+][a-z]{1,4}"];
    let own = proptest::collection::btree_set(name, 1..5);
    let own = own.prop_map(|names| MediaTypes(names.into_iter().collect()));
    prop_oneof![Just(MediaTypes::default()), own]
}
