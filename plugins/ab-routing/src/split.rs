//! The experiment: read from JSON, checked once; which variant a visitor gets and what that does to
//! a request. Knows no proxy.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Shares are counted in hundredths of a per cent.
const WHOLE: u32 = 10_000;

/// How long a visitor's variant is remembered unless configured: thirty days, in seconds.
const COOKIE_MAX_AGE_S_DEFAULT: u32 = 30 * 24 * 3600;

/// Everything the plugin is configured with.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Names the experiment; part of the hash, so that experiments divide visitors independently.
    pub name: String,
    /// What makes a visitor the same visitor.
    #[serde(default)]
    pub sticky: Sticky,
    /// The cookie; `ab-NAME` unless given.
    pub cookie: Option<String>,
    /// How long it lives.
    #[serde(default = "default_max_age_s")]
    pub cookie_max_age_seconds: u32,
    /// Whether it is sent over TLS only.
    #[serde(default)]
    pub cookie_secure: bool,
    /// What there is to choose from.
    pub variants: Vec<Variant>,
}

/// What makes a visitor the same visitor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sticky {
    /// A cookie that is set with the first answer.
    #[default]
    Cookie,
    /// A hash of the client's address.
    Client,
}

/// One of the things to choose from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    /// What the cookie says.
    pub name: String,
    /// How much of the traffic, with up to two decimals.
    percent: f64,
    /// A path prefix to exchange.
    pub prefix: Option<Prefix>,
    /// Request fields to set.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// A path prefix and what stands in its place.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prefix {
    from: String,
    to: String,
}

impl Experiment {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(json: &[u8]) -> Result<Experiment, String> {
        let experiment: Experiment = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        check_name(&experiment.name)?;
        experiment.cookie.iter().try_for_each(|name| check_name(name))?;
        let mut whole = 0;
        for (at, variant) in experiment.variants.iter().enumerate() {
            variant.check()?;
            whole += variant.share();
            if experiment.variants[..at].iter().any(|other| other.name == variant.name) {
                return Err(format!("variant “{}” occurs twice", variant.name));
            }
        }
        if whole != WHOLE {
            return Err(format!(
                "the variants make {} per cent, not 100",
                f64::from(whole) / 100.0
            ));
        }
        Ok(experiment)
    }

    /// The cookie's name.
    pub fn cookie_name(&self) -> String {
        self.cookie.clone().unwrap_or_else(|| format!("ab-{}", self.name))
    }

    /// The variant that the request's cookies name, if it still exists.
    pub fn remembered(&self, cookies: &str) -> Option<usize> {
        let name = self.cookie_name();
        let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
        let (_, chosen) = pairs.find(|(n, _)| *n == name)?;
        self.variants.iter().position(|variant| variant.name == chosen)
    }

    /// The variant for a visitor with this `key`: the same key, the same variant.
    pub fn choose(&self, key: &[u8]) -> usize {
        let hash = hash(self.name.as_bytes().iter().chain(&[0]).chain(key));
        // The product's upper half: as even as the hash is, without a division.
        let point = ((u128::from(hash) * u128::from(WHOLE)) >> 64) as u32;
        let mut end = 0;
        for (at, variant) in self.variants.iter().enumerate() {
            end += variant.share();
            if point < end {
                return at;
            }
        }
        // The shares make the whole, and a point is below it.
        self.variants.len() - 1
    }

    /// The Set-Cookie field that makes a visitor keep a variant.
    pub fn set_cookie(&self, variant: &Variant) -> String {
        let name = self.cookie_name();
        let secure = if self.cookie_secure { "; Secure" } else { "" };
        format!(
            "{name}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Lax{secure}",
            variant.name, self.cookie_max_age_seconds
        )
    }
}

impl Variant {
    /// What becomes of `target` (path and query); `None`: nothing.
    pub fn rewrite(&self, target: &str) -> Option<String> {
        let prefix = self.prefix.as_ref()?;
        let rest = target.strip_prefix(prefix.from.as_str())?;
        // “/shop” is a prefix of “/shop/a”, not of “/shopping”.
        let is_whole =
            prefix.from.ends_with('/') || rest.is_empty() || rest.starts_with(['/', '?']);
        is_whole.then(|| format!("{}{rest}", prefix.to))
    }

    fn share(&self) -> u32 {
        // Checked to be from 0 to 100.
        (self.percent * 100.0).round() as u32
    }

    fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        if !(0.0..=100.0).contains(&self.percent) {
            return Err(format!("“percent” must be from 0 to 100, not {}", self.percent));
        }
        if let Some(Prefix { from, to }) = &self.prefix {
            if !from.starts_with('/') || !to.starts_with('/') {
                return Err(format!("“{from}” and “{to}” must both begin with “/”"));
            }
            if from.ends_with('/') != to.ends_with('/') {
                return Err(format!("“{from}” and “{to}” must both end with “/”, or neither"));
            }
        }
        for (name, value) in &self.set {
            check_name(name)?;
            if value.bytes().any(|b| b < 0x20 || b == 0x7f) {
                return Err(format!("the value of “{name}” holds a control character"));
            }
        }
        Ok(())
    }
}

/// `address:port` or `[address]:port` without the port; an address alone as it is.
pub fn without_port(address: &[u8]) -> &[u8] {
    let colons = address.iter().filter(|b| **b == b':').count();
    let has_port = colons == 1 || address.starts_with(b"[");
    match address.iter().rposition(|b| *b == b':') {
        Some(at) if has_port => &address[..at],
        _ => address,
    }
}

/// A token (RFC 9110, 5.6.2): fits into a cookie, and names a field.
fn check_name(name: &str) -> Result<(), String> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("“{name}” must be letters, digits and “-”"));
    }
    Ok(())
}

/// FNV-1a and a final mix (that of splitmix64), because FNV's upper bits alone are uneven.
fn hash<'a>(bytes: impl Iterator<Item = &'a u8>) -> u64 {
    let fnv = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn default_max_age_s() -> u32 {
    COOKIE_MAX_AGE_S_DEFAULT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(variants: &str) -> Result<Experiment, String> {
        Experiment::parse(format!(r#"{{"name": "x", "variants": [{variants}]}}"#).as_bytes())
    }

    const THREE: &str = r#"{"name": "a", "percent": 70}, {"name": "b", "percent": 29.75},
                           {"name": "c", "percent": 0.25}"#;

    #[test]
    fn shares_are_kept() {
        let experiment = experiment(THREE).unwrap();
        let mut counts = [0_i32; 3];
        for key in 0..100_000_u32 {
            counts[experiment.choose(&key.to_le_bytes())] += 1;
        }
        // Five standard deviations of each.
        assert!((counts[0] - 70_000).abs() < 725, "{counts:?}");
        assert!((counts[1] - 29_750).abs() < 725, "{counts:?}");
        assert!((counts[2] - 250).abs() < 80, "{counts:?}");
    }

    #[test]
    fn a_visitor_keeps_a_variant_and_experiments_are_independent() {
        let one = experiment(r#"{"name": "a", "percent": 50}, {"name": "b", "percent": 50}"#);
        let mut one = one.unwrap();
        let chosen: Vec<usize> = (0..1000_u32).map(|k| one.choose(&k.to_le_bytes())).collect();
        let again: Vec<usize> = (0..1000_u32).map(|k| one.choose(&k.to_le_bytes())).collect();
        assert_eq!(chosen, again);
        one.name = "y".into();
        let same = (0..1000_u32).filter(|k| one.choose(&k.to_le_bytes()) == chosen[*k as usize]);
        let same = same.count();
        assert!((400..600).contains(&same), "{same}");
    }

    #[test]
    fn nobody_and_everybody() {
        let all = experiment(r#"{"name": "a", "percent": 0}, {"name": "b", "percent": 100}"#);
        let all = all.unwrap();
        assert!((0..10_000_u32).all(|key| all.choose(&key.to_le_bytes()) == 1));
    }

    #[test]
    fn cookies() {
        let mut experiment = experiment(THREE).unwrap();
        assert_eq!(experiment.remembered("q=1; ab-x=b; ab-y=c"), Some(1));
        assert_eq!(experiment.remembered("ab-x=gone"), None);
        assert_eq!(experiment.remembered(""), None);
        let plain = "ab-x=c; Path=/; Max-Age=2592000; HttpOnly; SameSite=Lax";
        assert_eq!(experiment.set_cookie(&experiment.variants[2]), plain);
        experiment.cookie = Some("try".into());
        experiment.cookie_secure = true;
        assert_eq!(experiment.remembered("ab-x=b; try=a"), Some(0));
        assert!(experiment.set_cookie(&experiment.variants[0]).starts_with("try=a; "));
        assert!(experiment.set_cookie(&experiment.variants[0]).ends_with("; Secure"));
    }

    #[test]
    fn prefixes() {
        let check = |from: &str, to: &str, target: &str, expect: Option<&str>| {
            let prefix = format!(r#"{{"from": "{from}", "to": "{to}"}}"#);
            let json = format!(r#"{{"name": "a", "percent": 100, "prefix": {prefix}}}"#);
            let experiment = experiment(&json).unwrap();
            assert_eq!(experiment.variants[0].rewrite(target).as_deref(), expect, "{target}");
        };
        check("/shop", "/new", "/shop", Some("/new"));
        check("/shop", "/new", "/shop?a=b", Some("/new?a=b"));
        check("/shop", "/new", "/shop/a", Some("/new/a"));
        check("/shop", "/new", "/shopping", None);
        check("/", "/b/", "/", Some("/b/"));
        check("/", "/b/", "/x/y?z", Some("/b/x/y?z"));
        check("/", "/b/", "*", None);
    }

    #[test]
    fn addresses_without_ports() {
        let check = |address: &str, expect: &str| {
            assert_eq!(without_port(address.as_bytes()), expect.as_bytes(), "{address}");
        };
        check("192.0.2.1:80", "192.0.2.1");
        check("192.0.2.1", "192.0.2.1");
        check("[2001:db8::1]:80", "[2001:db8::1]");
        check("2001:db8::1", "2001:db8::1");
        check("", "");
    }

    #[test]
    fn mistakes_are_named() {
        let check = |variants: &str, expect: &str| {
            let error = experiment(variants).unwrap_err();
            assert!(error.contains(expect), "{error}");
        };
        check("", "make 0 per cent");
        check(r#"{"name": "a", "percent": 99.9}"#, "make 99.9 per cent");
        check(r#"{"name": "a", "percent": 101}"#, "from 0 to 100");
        check(r#"{"name": "a;", "percent": 100}"#, "“a;”");
        check(r#"{"name": "a", "percent": 50}, {"name": "a", "percent": 50}"#, "twice");
        check(r#"{"name": "a", "percent": 100, "sett": {}}"#, "sett");
        let with = |more: &str| format!(r#"{{"name": "a", "percent": 100, {more}}}"#);
        check(&with(r#""prefix": {"from": "/a", "to": "b"}"#), "begin with");
        check(&with(r#""prefix": {"from": "/a", "to": "/b/"}"#), "or neither");
        check(&with(r#""set": {"a": "b\r\nc"}"#), "control character");
        check(&with(r#""set": {"a b": "c"}"#), "“a b”");
    }
}
