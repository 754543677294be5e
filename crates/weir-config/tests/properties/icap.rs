//! Any `icap` block that a file could make.

use proptest::option;
use proptest::prelude::*;
use weir_config::*;

use super::time;

pub(crate) fn icap() -> impl Strategy<Value = Icap> {
    let urls = prop_oneof![
        (url(), option::of(url())).prop_map(|(one, other)| (Some(one), other)),
        url().prop_map(|one| (None, Some(one))),
    ];
    (urls, time(10, 600_000), 1_usize..=10_000, any::<(bool, bool)>()).prop_map(
        |((reqmod, respmod), timeout, connections, (client_address, passes))| Icap {
            name: "scanner".to_owned(),
            reqmod,
            respmod,
            timeout,
            connections,
            client_address,
            on_failure: if passes { OnFailure::Pass } else { OnFailure::Fail },
        },
    )
}

fn url() -> impl Strategy<Value = IcapUrl> {
    let host =
        prop_oneof!["[a-z]{1,4}[.]example", Just("::1".to_owned()), Just("10.0.0.1".to_owned())];
    let path = "/[a-z/?=]{0,9}";
    (host, 1_u16.., path).prop_map(|(host, port, path)| IcapUrl { host, port, path })
}
