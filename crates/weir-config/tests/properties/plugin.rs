//! Any plugins that a file could make, and what routes use of them.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_config::*;

use super::{file, time};

fn names(name: impl Strategy<Value = String>) -> impl Strategy<Value = Names> {
    let these = proptest::collection::btree_set(name, 0..3);
    prop_oneof![
        1 => Just(Names::All),
        4 => these.prop_map(|names| Names::These(names.into_iter().collect())),
    ]
}

fn allow() -> impl Strategy<Value = Allow> {
    let variables = proptest::collection::btree_map("[^=\0]{1,8}", "[^\0]{0,8}", 0..3);
    let shared = names("[a-z/\" \\\\😀é-]{1,10}");
    (names(Just("app".to_owned())), shared, any::<[bool; 4]>(), variables).prop_map(
        |(upstreams, shared, [request_body, response_body, cache, log], variables)| Allow {
            upstreams,
            shared,
            request_body,
            response_body,
            cache,
            log,
            environment: variables.into_iter().collect(),
        },
    )
}

fn plugin_policy() -> impl Strategy<Value = PluginPolicy> {
    let limits = (time(1, 10_000), 65_536_u64..=4 << 30, 0_u32..=10_000_000, time(1, 1_000));
    let back_off = time(10, 3_600_000)
        .prop_flat_map(|least| (Just(least), 0_u64..=82_800_000))
        .prop_map(|(least, more)| (least, least + Duration::from_millis(more)));
    let quarantine = (1_u32..=1_000, time(100, 3_600_000), back_off);
    (limits, 1_u32..=100_000, any::<bool>(), quarantine, allow()).prop_map(
        |((cpu, memory, tables, long), log_per_s, fail, (failures, window, back_off), allow)| {
            let (back_off, back_off_max) = back_off;
            PluginPolicy {
                cpu,
                memory,
                tables,
                long,
                log_per_s,
                on_failure: if fail { OnFailure::Fail } else { OnFailure::Pass },
                quarantine: Quarantine { failures, window, back_off, back_off_max },
                allow,
            }
        },
    )
}

pub(crate) fn plugins() -> impl Strategy<Value = (Plugins, Vec<Plugin>)> {
    let settings = (option::of(file()), 1_usize..=256);
    let (name, root_id) = ("[a-zA-Z0-9][a-zA-Z0-9._-]{0,8}", option::of("[ -~]{0,8}"));
    let plugin = (name, file(), any::<[String; 2]>(), root_id, plugin_policy());
    let plugin = plugin.prop_map(|(name, source, [config, vm_config], root_id, policy)| Plugin {
        name,
        source,
        config,
        vm_config,
        root_id,
        policy,
    });
    (settings, vec(plugin, 0..3)).prop_map(|((store, long_threads), mut plugins)| {
        plugins.sort_by_key(|plugin| plugin.name.clone());
        plugins.dedup_by_key(|plugin| plugin.name.clone());
        (Plugins { store, long_threads }, plugins)
    })
}

pub(crate) fn uses() -> impl Strategy<Value = Vec<Use>> {
    let at = prop::sample::select(vec![At::Delivery, At::Fill]);
    vec(("[a-z0-9][a-z0-9._-]{0,8}", at).prop_map(|(plugin, at)| Use { plugin, at }), 0..3)
}
