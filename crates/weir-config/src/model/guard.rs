//! Overload control: the `guard` block.

use std::path::PathBuf;
use std::time::Duration;

use super::AddressSet;

/// The class of whatever no rule gives another.
pub const DEFAULT_CLASS: &str = "default";

/// The `guard` block. Without one there is one class, and no rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Classes by rising priority number, so that the one that goes first is first. Names and
    /// priorities are unique, and [`DEFAULT_CLASS`] is always among them.
    pub classes: Vec<Class>,
    /// Lists of addresses in file order. Names are unique.
    pub lists: Vec<AddressList>,
    /// Rules in file order. Names are unique.
    pub rules: Vec<GuardRule>,
    /// Buckets by source, prefix, header or cookie that are kept at a time, over all rules; the
    /// oldest are forgotten.
    pub keys: usize,
    /// Queueing delay from which on the server is overloaded when it stands for
    /// [`Guard::interval`] (CoDel's target, RFC 8289 §4.2).
    pub target: Duration,
    /// How long the delay must stand, and how often limits are thought over (CoDel's interval).
    pub interval: Duration,
    /// What of the rules runs in the kernel.
    pub kernel: KernelUse,
    /// Where rules can drop packets before the TCP stack sees them.
    pub interface: Option<Interface>,
}

/// A `class` line.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What rules, metrics and logs call it.
    pub name: String,
    /// 1 goes first.
    pub priority: u8,
    /// Requests that may wait for an upstream at a time, for each upstream.
    pub queue: usize,
    /// How long one of them waits at most.
    pub wait: Duration,
    /// So many turns in a hundred are its own while one of its requests waits.
    pub share: u8,
}

/// A `list` line: addresses from a file, that rules name as `@name`.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressList {
    /// What rules call it.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// What is in it; nothing until the file has been read.
    pub addresses: AddressSet,
}

/// A `rule` block: who it means, and what happens to them.
#[derive(Clone, Debug, PartialEq)]
pub struct GuardRule {
    /// What metrics and logs call it, and what its buckets are kept by across reloads.
    pub name: String,
    /// Whom it means.
    pub on: Match,
    /// The class they get, unless a rule before has given one.
    pub class: Option<String>,
    /// What each bucket of theirs may have.
    pub rate: Option<Rate>,
    /// Requests of each bucket that may be served at a time.
    pub concurrency: Option<u32>,
    /// What a bucket is for.
    pub by: BucketKey,
    /// What the rate counts.
    pub unit: RateUnit,
    /// Refuses all of them.
    pub refuse: bool,
    /// They pass: no rule after this one is looked at.
    pub pass: bool,
    /// Rate, concurrency and refusal hold at all times, not only under overload.
    pub always: bool,
    /// It is only tried: what it would refuse is counted, and let through.
    pub dry_run: bool,
    /// How they are refused.
    pub answer: RefusalAnswer,
    /// Who is refused too often is not let in for a while.
    pub penalty: Option<Penalty>,
}

/// What a rule counts and refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RateUnit {
    /// Connections where the rule needs no more than addresses and ports, else requests.
    #[default]
    Auto,
    /// Requests in any case.
    Requests,
}

/// So many connections or requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// 1 or more.
    pub count: u32,
    /// One second, minute or hour.
    pub period: Duration,
    /// How many may come at once; 1 or more.
    pub burst: u32,
}

/// What a rule keeps one bucket for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum BucketKey {
    /// The rule as a whole.
    #[default]
    Rule,
    /// Each source address.
    Source,
    /// Each source prefix of so many bits.
    Prefix {
        /// Bits of IPv4 addresses.
        v4: u8,
        /// Bits of IPv6 addresses.
        v6: u8,
    },
    /// Each value of a header field; its name is in lower case. Requests without it have none, and
    /// are not limited by the rule.
    Header(String),
    /// Each value of a cookie, likewise.
    Cookie(String),
}

/// How a request is refused. Connections are dropped without a word where the kernel decides, and
/// reset where Weir does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalAnswer {
    /// 429 or 503, with Retry-After.
    Status(u16),
    /// The connection is reset (HTTP/2: the stream).
    Reset,
}

/// A `penalty` line: so many refusals within a time, and a source is not let in for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Penalty {
    /// Refusals.
    pub after: u32,
    /// The time in which they happen.
    pub within: Duration,
    /// How long new connections of the source are dropped.
    pub lasts: Duration,
    /// What a source is.
    pub by: PrefixLengths,
}

/// How many bits of a source address count; the others are whoever has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixLengths {
    /// Of IPv4 addresses, 1 to 32.
    pub v4: u8,
    /// Of IPv6 addresses, 1 to 128.
    pub v6: u8,
}

/// What of the rules runs in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KernelUse {
    /// Whatever can be, as far as the kernel and the process's privileges allow.
    #[default]
    Auto,
    /// Nothing: the same is decided after connections are accepted.
    Off,
}

/// The `interface` line: a network interface, and where on it packets are met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name, as `ip link` shows it.
    pub name: String,
    /// How.
    pub hook: InterfaceHook,
}

/// Where on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceHook {
    /// Before the network stack.
    Xdp,
    /// At the traffic control ingress hook.
    Tcx,
}

/// Conditions. All that are given hold; one given several times holds if any of its values does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// Source addresses.
    pub from: Option<AddressSet>,
    /// Source ports, as ranges with both ends.
    pub from_ports: Vec<(u16, u16)>,
    /// Destination addresses.
    pub to: Option<AddressSet>,
    /// Destination ports, likewise.
    pub ports: Vec<(u16, u16)>,
    /// Sites, by their first names.
    pub sites: Vec<String>,
    /// Normalised paths.
    pub paths: Vec<PathMatch>,
    /// Methods, in upper case.
    pub methods: Vec<String>,
    /// Header fields. Those of one name are alternatives; all names must be met.
    pub headers: Vec<FieldMatch>,
    /// Cookies, likewise.
    pub cookies: Vec<FieldMatch>,
    /// Query parameters, likewise.
    pub queries: Vec<FieldMatch>,
    /// Names that TLS clients asked for, `*.example` included, in lower case.
    pub server_names: Vec<String>,
    /// Media types of the request's content without parameters, such as `image/*`, in lower case.
    pub content_types: Vec<String>,
    /// What plugins made of the request (`weir.guard.verdict`).
    pub verdicts: Vec<String>,
}

/// How a path is matched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum PathMatch {
    /// This one.
    Exact(String),
    /// All that begin so.
    Prefix(String),
    /// A pattern in which `*` stands for anything, `/` included.
    Glob(String),
}

/// A condition on a named value of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// The name; of header fields in lower case.
    pub name: String,
    /// Its value.
    pub value: ValueMatch,
}

/// How a value is matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueMatch {
    /// It is there, whatever it is.
    Present,
    /// It is not there.
    Absent,
    /// This one.
    Exact(String),
    /// A pattern in which `*` stands for anything.
    Glob(String),
}

impl Default for Guard {
    fn default() -> Guard {
        Guard {
            classes: vec![Class::default()],
            lists: Vec::new(),
            rules: Vec::new(),
            keys: 1 << 20,
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            kernel: KernelUse::Auto,
            interface: None,
        }
    }
}

impl Default for Class {
    fn default() -> Class {
        Class {
            name: DEFAULT_CLASS.to_owned(),
            priority: 2,
            queue: 10_000,
            wait: Duration::from_secs(5),
            share: 0,
        }
    }
}

impl Match {
    /// Whether the source's address decides alone.
    pub(crate) fn is_of_sources(&self) -> bool {
        let has_others = self.to.is_some() || !self.from_ports.is_empty() || !self.ports.is_empty();
        self.is_of_connections() && !has_others
    }

    /// Whether addresses and ports decide alone, so that the kernel can.
    pub fn is_of_connections(&self) -> bool {
        let Match {
            from: _,
            from_ports: _,
            to: _,
            ports: _,
            sites,
            paths,
            methods,
            headers,
            cookies,
            queries,
            server_names,
            content_types,
            verdicts,
        } = self;
        let texts = [sites, methods, server_names, content_types, verdicts];
        texts.iter().all(|values| values.is_empty())
            && paths.is_empty()
            && [headers, cookies, queries].iter().all(|fields| fields.is_empty())
    }
}

impl Guard {
    /// Sources that no penalty holds for: by their address alone, a rule before the first with a
    /// penalty lets them pass.
    pub fn spared(&self) -> Option<AddressSet> {
        let before = self.rules.iter().take_while(|rule| rule.penalty.is_none());
        let passing = before.filter(|rule| rule.pass && rule.on.is_of_sources());
        let sets = passing.filter_map(|rule| rule.on.from.as_ref());
        AddressSet::new(sets.flat_map(AddressSet::ranges).copied().collect())
    }
}

impl GuardRule {
    /// Whether the rule is for connections: its conditions need nothing of a request, and neither
    /// do its buckets.
    pub fn is_of_connections(&self) -> bool {
        let by_address = !matches!(self.by, BucketKey::Header(_) | BucketKey::Cookie(_));
        let may = self.unit == RateUnit::Auto && self.concurrency.is_none();
        may && by_address && self.on.is_of_connections()
    }
}
