//! Any forward proxy that a file could make prints to what parses to the same.

use std::net::IpAddr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use weir_config::*;

use super::{file, time};

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(128)
    })]

    #[test]
    fn what_is_printed_of_a_forward_proxy_parses_to_the_same(forward in forward()) {
        let mut config = serve_dir("/srv".as_ref(), parse_listen("127.0.0.1:80").unwrap(), None);
        config.sites[0].routes[0].source = Source::Forward(Box::new(forward));
        let text = print(&config);
        let again = parse("weir.kdl", &text).map_err(|errors| {
            TestCaseError::fail(format!("{errors}\n\nin:\n{text}"))
        })?;
        prop_assert_eq!(again, config, "{}", text);
    }
}

fn forward() -> impl Strategy<Value = Forward> {
    let times = (time(1, 3_600_000), time(1, 3_600_000), time(1, 3_600_000));
    let ranges =
        ((vec(prefix(), 0..3), option::of(users())), vec(ports(), 1..3), vec(prefix(), 0..3));
    let rest = (times, connect(), option::of(file()), option::of(inspect()));
    (ranges, vec(rule(), 0..4), rest).prop_map(
        |(
            ((from, users), ports, private),
            rules,
            ((to_connect, first_byte, idle), connect, ca, inspect),
        )| Forward {
            from,
            users,
            rules,
            ports,
            private,
            connect,
            inspect,
            connect_timeout: to_connect,
            first_byte_timeout: first_byte,
            idle_timeout: idle,
            ca,
        },
    )
}

fn inspect() -> impl Strategy<Value = ForwardInspect> {
    let host = prop_oneof![
        "[a-z]{1,4}[.]example".prop_map(Destination::Host),
        "[.][a-z]{1,4}[.]example".prop_map(Destination::Suffix),
    ];
    (vec(host, 1..3), file(), file()).prop_map(|(hosts, ca, key)| ForwardInspect { hosts, ca, key })
}

fn users() -> impl Strategy<Value = ForwardUsers> {
    (file(), "[ !#-Z_a-z]{0,9}", any::<bool>()).prop_map(|(file, realm, cleartext)| ForwardUsers {
        file,
        realm,
        cleartext,
    })
}

fn connect() -> impl Strategy<Value = ForwardConnect> {
    let numbers = (option::of(1_u64..=1 << 40), 1_usize..=1_000_000);
    (vec(ports(), 0..3), time(1_000, 86_400_000), numbers)
        .prop_map(|(ports, idle, (bytes, open))| ForwardConnect { ports, idle, bytes, open })
}

fn rule() -> impl Strategy<Value = ForwardRule> {
    let destination = prop_oneof![
        Just(Destination::Any),
        "[a-z]{1,4}[.]example".prop_map(Destination::Host),
        "[.][a-z]{1,4}[.]example".prop_map(Destination::Suffix),
        prefix().prop_map(Destination::Prefix),
    ];
    (any::<bool>(), vec(destination, 1..4), option::of(ports()))
        .prop_map(|(allows, destinations, ports)| ForwardRule { allows, destinations, ports })
}

fn ports() -> impl Strategy<Value = (u16, u16)> {
    (1_u16.., 0_u16..100).prop_map(|(first, more)| (first, first.saturating_add(more)))
}

fn prefix() -> impl Strategy<Value = Prefix> {
    let v4 = (any::<[u8; 4]>(), 0_u8..=32).prop_map(|(ip, bits)| (IpAddr::from(ip), bits));
    let v6 = (any::<[u8; 14]>(), 0_u8..=112).prop_map(|(rest, bits)| {
        let mut ip = [0x20; 16];
        ip[2..].copy_from_slice(&rest);
        (IpAddr::from(ip), bits)
    });
    prop_oneof![v4, v6].prop_filter_map("a prefix", |(ip, bits)| Prefix::new(ip, bits))
}
