//! What may be connected to, as a table.

#![allow(clippy::unwrap_used, reason = "a test says what it expects by failing")]

use super::*;

fn egress(lines: &str) -> Egress {
    let text = format!(
        "site \"*\" {{ listen \"127.0.0.1:3128\"; route \"/*\" {{ forward {{\n{lines}\n}}; }}; }}"
    );
    let config = weir_config::parse("weir.kdl", &text).unwrap();
    let weir_config::Source::Forward(forward) = &config.sites[0].routes[0].source else { panic!() };
    let own = ["127.0.0.1:9900", "[::]:3128"].map(|own| own.parse().unwrap());
    Egress::new(forward, own.to_vec())
}

fn check(egress: &Egress, ip: &str, expected: Result<(), Denied>) {
    let address = SocketAddr::new(ip.parse().unwrap(), 80);
    assert_eq!(egress.judge_address(Named::Allowed, address), expected, "{ip}");
}

#[test]
fn addresses_that_are_not_public_are_denied() {
    let egress = egress("");
    for ip in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.170",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::2",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:10::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a00:1::1",
        "2002:a9fe:a9fe::",
        "2620:4f:8000::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "2a00:1450::5efe:10.0.0.1",
    ] {
        check(&egress, ip, Err(Denied::Private));
    }
    for ip in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.1",
        "192.167.255.255",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.1.1",
        "::ffff:8.8.8.8",
        "2606:4700::1111",
        "2a00:1450:4001::200e",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2001:200::1",
    ] {
        check(&egress, ip, Ok(()));
    }
}

#[test]
fn ranges_are_opened_by_name() {
    let egress = egress("private \"10.1.0.0/16\" \"::1\" \"64:ff9b:1::/48\"");
    check(&egress, "10.1.2.3", Ok(()));
    check(&egress, "::ffff:10.1.2.3", Ok(()));
    check(&egress, "64:ff9b::10.1.2.3", Ok(()));
    check(&egress, "64:ff9b:1::10.2.2.3", Ok(()));
    check(&egress, "10.2.0.1", Err(Denied::Private));
    check(&egress, "::1", Ok(()));
    check(&egress, "127.0.0.1", Err(Denied::Private));
}

#[test]
fn the_server_is_never_asked_itself() {
    let egress = egress("ports 80 3128 9900\nprivate \"0.0.0.0/0\" \"::/0\"");
    let judge = |address: &str| egress.judge_address(Named::Allowed, address.parse().unwrap());
    for own in [
        "127.0.0.1:9900",
        "[::ffff:127.0.0.1]:9900",
        "127.0.0.1:3128",
        "127.9.9.9:3128",
        "[::1]:3128",
        "0.0.0.0:9900",
        "[::]:9900",
    ] {
        assert_eq!(judge(own), Err(Denied::Own), "{own}");
    }
    assert_eq!(judge("127.0.0.2:9900"), Ok(()));
    assert_eq!(judge("127.0.0.1:80"), Ok(()));
    let back =
        |local: &str, peer: &str| egress.is_back(local.parse().unwrap(), peer.parse().unwrap());
    assert!(back("192.0.2.7:40000", "192.0.2.7:3128"));
    assert!(!back("192.0.2.7:40000", "192.0.2.7:80"));
    assert!(!back("192.0.2.7:40000", "192.0.2.8:3128"));
}

#[test]
fn names_and_ports_are_allowed_and_denied() {
    let egress = egress(
        "allow \"*.example\" \"198.51.0.0/16\"\nallow \"odd.test\" port=8080\n\
         deny \"bad.example\" \"*.bad.example\"\ndeny \"*.example\" port=25\nports 25 80 8080",
    );
    for (name, port, expected) in [
        ("a.example", 80, Ok(Named::Allowed)),
        ("a.b.example", 8080, Ok(Named::Allowed)),
        ("example", 80, Ok(Named::IfAddress)),
        ("bad.example", 80, Err(Denied::Host)),
        ("x.bad.example", 80, Err(Denied::Host)),
        ("notbad.example", 80, Ok(Named::Allowed)),
        ("a.example", 25, Err(Denied::Host)),
        ("odd.test", 8080, Ok(Named::Allowed)),
        ("odd.test", 80, Ok(Named::IfAddress)),
        ("a.example", 443, Err(Denied::Port)),
    ] {
        assert_eq!(egress.judge_name(name, port), expected, "{name}:{port}");
    }
    let by_address =
        |ip: [u8; 4]| egress.judge_address(Named::IfAddress, SocketAddr::from((ip, 80)));
    assert_eq!(by_address([198, 51, 7, 1]), Ok(()));
    assert_eq!(by_address([8, 8, 8, 8]), Err(Denied::Address));
    // Allowed is not opened.
    assert_eq!(by_address([198, 51, 100, 1]), Err(Denied::Private));
}

#[test]
fn addresses_are_denied_behind_what_carries_them() {
    let egress = egress("deny \"8.8.8.0/24\"");
    for ip in ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"] {
        check(&egress, ip, Err(Denied::Address));
    }
}

#[test]
fn only_what_was_judged_is_connected_to() {
    let egress = egress("");
    let both: Vec<SocketAddr> =
        vec!["127.0.0.1:80".parse().unwrap(), "[::ffff:8.8.8.8]:80".parse().unwrap()];
    let chosen = egress.choose("a.example", 80, &both).unwrap();
    assert_eq!(chosen, ["8.8.8.8:80".parse().unwrap()]);
    assert_eq!(egress.choose("a.example", 80, &both[..1]), Err(Denied::Private));
    assert_eq!(egress.choose("a.example", 81, &both), Err(Denied::Port));
}

#[test]
fn numbers_in_disguise_are_known() {
    for name in [
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0177.0.0.01",
        "1.2.3.4.5",
        "a.0x",
        "256.1.1.1",
        "09.1.1.1",
    ] {
        assert!(is_disguised_number(name), "{name}");
    }
    for name in ["127.0.0.1", "a.example", "1.example", "0x7f.example", "4.4.4.com", "[::1]", "x0"]
    {
        assert!(!is_disguised_number(name), "{name}");
    }
}
