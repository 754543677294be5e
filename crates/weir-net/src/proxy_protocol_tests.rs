use proptest::prelude::*;

use super::*;

const SIGNATURE: [u8; 12] = *V2_SIGNATURE;

fn addresses(source: &str, destination: &str) -> Option<Addresses> {
    Some(Addresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
}

/// A version 2 header with its length filled in.
fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&SIGNATURE[..], &[command, family], &length, payload].concat()
}

/// Checks the whole input, every shorter one (must ask for more, and never for more than there is
/// to come) and one with the client's bytes after it (must not matter).
#[track_caller]
fn check(header: &[u8], expect: Option<Addresses>) {
    let complete = Ok(Parsed::Complete { addresses: expect, consumed: header.len() });
    assert_eq!(parse(header), complete);
    assert_eq!(parse(&[header, b"GET / HTTP/1.1\r\n"].concat()), complete);
    for length in 0..header.len() {
        match parse(&header[..length]) {
            Ok(Parsed::Incomplete { at_least }) => {
                assert!(at_least > length && at_least <= header.len(), "{at_least} at {length}");
            }
            other => panic!("{length} bytes of {header:?}: {other:?}"),
        }
    }
}

#[track_caller]
fn refuse(received: &[u8], expect: Invalid) {
    assert_eq!(parse(received), Err(expect), "{}", received.escape_ascii());
}

#[test]
fn version_1_lines() {
    check(
        b"PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
        addresses("192.168.0.1:56324", "192.168.0.11:443"),
    );
    // The longest lines of the specification, section 2.1.
    check(
        b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
        addresses("255.255.255.255:65535", "255.255.255.255:65535"),
    );
    let v6 = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff";
    check(
        format!("PROXY TCP6 {v6} {v6} 65535 65535\r\n").as_bytes(),
        addresses(&format!("[{v6}]:65535"), &format!("[{v6}]:65535")),
    );
    check(b"PROXY TCP6 ::1 2001:db8::2 0 1\r\n", addresses("[::1]:0", "[2001:db8::2]:1"));
    check(b"PROXY UNKNOWN\r\n", None);
    check(b"PROXY UNKNOWN ffff::1 anything at all\r\n", None);
    let longest = format!("PROXY UNKNOWN {v6} {v6} 65535 65535\r\n");
    assert_eq!(longest.len(), V1_SIZE_MAX);
    check(longest.as_bytes(), None);
}

#[test]
fn version_1_refusals() {
    refuse(b"GET / HTTP/1.1\r\n", Invalid::Signature);
    refuse(b"POST / HTTP/1.1\r\n", Invalid::Signature);
    refuse(b"PROXYX", Invalid::Signature);
    refuse(b"proxy TCP4", Invalid::Signature);
    refuse(b"PROXY UDP4 1.2.3.4 1.2.3.4 1 1\r\n", Invalid::Fields);
    refuse(b"PROXY UNKNOWNS\r\n", Invalid::Fields);
    refuse(b"PROXY \r\n", Invalid::Fields);
    refuse(b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", Invalid::Fields);
    refuse(b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 1\r\n", Invalid::Fields);
    refuse(b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1 \r\n", Invalid::Fields);
    refuse(b"PROXY TCP4  1.2.3.4 1.2.3.4 1 1\r\n", Invalid::Port);
    refuse(b"PROXY TCP4 ::1 ::1 1 1\r\n", Invalid::Address);
    refuse(b"PROXY TCP6 1.2.3.4 1.2.3.4 1 1\r\n", Invalid::Address);
    refuse(b"PROXY TCP6 [::1] ::1 1 1\r\n", Invalid::Address);
    refuse(b"PROXY TCP4 1.2.3.04 1.2.3.4 1 1\r\n", Invalid::Address);
    for port in ["65536", "+80", "-1", "080", "00", "", "8a", "１"] {
        refuse(format!("PROXY TCP4 1.2.3.4 1.2.3.4 {port} 1\r\n").as_bytes(), Invalid::Port);
        refuse(format!("PROXY TCP4 1.2.3.4 1.2.3.4 1 {port}\r\n").as_bytes(), Invalid::Port);
    }
    refuse(b"PROXY UNKNOWN\n", Invalid::LineEnd);
    refuse(b"PROXY UNKNOWN\rx", Invalid::LineEnd);
    refuse(b"PROXY UNKNOWN\0\r\n", Invalid::LineEnd);
    refuse(b"PROXY UNKNOWN \xff\r\n", Invalid::Fields);
    refuse(format!("PROXY UNKNOWN {:0>93}", 0).as_bytes(), Invalid::LineTooLong);
    // The line feed would be byte 108.
    refuse(format!("PROXY UNKNOWN {:0>92}\r", 0).as_bytes(), Invalid::LineEnd);
}

#[test]
fn version_2_headers() {
    let v4 = [10, 0, 0, 1, 10, 0, 0, 2, 0x04, 0xd2, 0x01, 0xbb];
    let expect_v4 = addresses("10.0.0.1:1234", "10.0.0.2:443");
    check(&v2(0x21, 0x11, &v4), expect_v4);
    check(&v2(0x21, 0x12, &v4), expect_v4);
    let tlvs = [&v4[..], &[0x04, 0, 0], &[0xea, 0, 3, 1, 2, 3]].concat();
    check(&v2(0x21, 0x11, &tlvs), expect_v4);

    let mut v6 = [0; 36];
    v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    v6[15] = 1;
    v6[31] = 2;
    v6[32..].copy_from_slice(&[0xff, 0xff, 0, 80]);
    let expect_v6 = addresses("[2001:db8::1]:65535", "[::2]:80");
    check(&v2(0x21, 0x21, &v6), expect_v6);
    check(&v2(0x21, 0x22, &v6), expect_v6);

    check(&v2(0x21, 0x31, &[b'/'; 216]), None);
    check(&v2(0x21, 0x32, &[b'/'; 216]), None);
    check(&v2(0x21, 0x00, &[]), None);
    check(&v2(0x21, 0x00, &[1, 2, 3, 4, 5]), None);
    check(&v2(0x20, 0x00, &[]), None);
    check(&v2(0x20, 0x11, &v4), None);
    // LOCAL: family and payload are to be ignored, whatever they are.
    check(&v2(0x20, 0xff, &[9; 7]), None);
    check(&v2(0x20, 0x00, &[0; V2_SIZE_MAX - V2_PREFIX_SIZE]), None);
}

#[test]
fn version_2_refusals() {
    refuse(b"\r\n\r\nx", Invalid::Signature);
    refuse(b"\rG", Invalid::Signature);
    refuse(&v2(0x11, 0x11, &[0; 12]), Invalid::Command(0x11));
    refuse(&v2(0x22, 0x11, &[0; 12]), Invalid::Command(0x22));
    // Refused before the rest arrives.
    refuse(&[&SIGNATURE[..], &[0x31]].concat(), Invalid::Command(0x31));
    for family in [0x01, 0x10, 0x13, 0x23, 0x33, 0x41, 0xff] {
        refuse(&v2(0x21, family, &[0; 216]), Invalid::Family(family));
    }
    refuse(&v2(0x21, 0x11, &[0; 11]), Invalid::AddressesTruncated);
    refuse(&v2(0x21, 0x21, &[0; 35]), Invalid::AddressesTruncated);
    refuse(&v2(0x21, 0x31, &[0; 215]), Invalid::AddressesTruncated);
    refuse(&v2(0x21, 0x11, &[0; 13]), Invalid::ExtensionTruncated);
    refuse(&v2(0x21, 0x11, &[0; 14]), Invalid::ExtensionTruncated);
    refuse(&v2(0x21, 0x11, &[&[0; 12][..], &[4, 0, 1]].concat()), Invalid::ExtensionTruncated);
    let length = V2_SIZE_MAX + 1;
    refuse(&v2(0x20, 0, &vec![0; length - V2_PREFIX_SIZE]), Invalid::TooLong(length));
    // Refused as soon as the length is known.
    refuse(&v2(0x21, 0x11, &vec![0; 60_000])[..16], Invalid::TooLong(60_016));
}

fn any_address() -> impl Strategy<Value = SocketAddr> {
    prop_oneof![
        any::<std::net::SocketAddrV4>().prop_map(SocketAddr::V4),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from)
    ]
}

proptest! {
    /// Whatever a sender writes by the specification comes out again, however it is cut.
    #[test]
    fn round_trip(source in any_address(), destination in any_address(), tlv: Vec<u8>) {
        prop_assume!(source.is_ipv4() == destination.is_ipv4());
        let expect = Some(Addresses { source, destination });
        let family = if source.is_ipv4() { 4 } else { 6 };
        check(
            format!(
                "PROXY TCP{family} {} {} {} {}\r\n",
                source.ip(), destination.ip(), source.port(), destination.port()
            )
            .as_bytes(),
            expect,
        );
        let octets = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let mut payload = [octets(source.ip()), octets(destination.ip())].concat();
        payload.extend(source.port().to_be_bytes());
        payload.extend(destination.port().to_be_bytes());
        payload.push(0xe0);
        payload.extend(u16::try_from(tlv.len()).unwrap().to_be_bytes());
        payload.extend(&tlv);
        check(&v2(0x21, if family == 4 { 0x11 } else { 0x21 }, &payload), expect);
    }

    /// Arbitrary bytes after a plausible start: no panic, nothing consumed that is not there, and
    /// an answer does not change when more bytes arrive.
    #[test]
    fn answers_are_stable(
        start in prop::sample::select(vec![
            &b""[..],
            b"PROXY ",
            b"PROXY TCP4 1.2.3.4 ",
            V2_SIGNATURE,
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0",
        ]),
        rest in prop::collection::vec(
            prop_oneof![any::<u8>(), prop::sample::select(b" 1\r\n".to_vec())],
            0..130,
        ),
    ) {
        let received = [start, &rest[..]].concat();
        let whole = parse(&received);
        if let Ok(Parsed::Complete { consumed, .. }) = whole {
            prop_assert!(consumed <= received.len());
        }
        for length in 0..received.len() {
            match parse(&received[..length]) {
                Ok(Parsed::Incomplete { at_least }) => {
                    prop_assert!(at_least > length);
                    if let Ok(Parsed::Complete { consumed, .. }) = whole {
                        prop_assert!(at_least <= consumed);
                    }
                }
                earlier => prop_assert_eq!(&earlier, &whole),
            }
        }
    }
}
