//! The table of experiments.

use super::{Experiment, adapted, guarded, images, memory, p1, p2, p3, p4, s1, s3, throughput};

/// All experiments, in the order of the document that asks for them.
pub static ALL: [Experiment; 26] = [
    Experiment {
        id: "s1",
        title: "40 clients, one document of 500 B to 200 KB, a connection per request",
        contenders: &["weir", "nginx", "apache", "h2o", "lighttpd", "floor", "floor-file"],
        run: s1::run,
    },
    Experiment {
        id: "s2",
        title: "40 clients, one document of 500 B to 200 KB, persistent connections",
        contenders: &["weir", "nginx", "apache", "h2o", "lighttpd", "floor", "floor-file"],
        run: s1::run,
    },
    Experiment {
        id: "s3",
        title: "40 clients, documents of a separate application over a Unix socket",
        contenders: &["weir", "nginx", "haproxy"],
        run: s3::run,
    },
    Experiment {
        id: "s5",
        title: "500 slow clients, each holding a response of 1 MB: memory of the server",
        contenders: &["weir", "nginx"],
        run: memory::run_slow,
    },
    Experiment {
        id: "idle",
        title: "10,000 idle keep-alive connections after a request each: memory of the server",
        contenders: &["weir", "nginx"],
        run: memory::run_idle,
    },
    Experiment {
        id: "p1",
        title: "an empty plugin: a call by itself, and in servers that answer with 500 B",
        contenders: &["weir", "envoy"],
        run: p1::run,
    },
    Experiment {
        id: "p2",
        title: "deploying the transcoder, and replacing one generation of a plugin by the next",
        contenders: &["weir"],
        run: p2::run,
    },
    Experiment {
        id: "p3",
        title: "latency and replies over the rate of requests, without and with an empty extension",
        contenders: &["weir", "haproxy", "envoy"],
        run: p3::run,
    },
    Experiment {
        id: "p4",
        title: "the grey-scale transcoder on pictures of 9 KB to 3.3 MB: none, native, isolated",
        contenders: &["weir"],
        run: p4::run,
    },
    Experiment {
        id: "a1",
        title: "adapters and plugins that have nothing to do, little, or every page to change",
        contenders: &["weir"],
        run: adapted::cost::a1,
    },
    Experiment {
        id: "a2",
        title: "a list of 70,000 rules about ads, none of which matches",
        contenders: &["weir"],
        run: adapted::cost::a2,
    },
    Experiment {
        id: "a3",
        title: "pictures of 8 KB that are to be made smaller, beside a background load",
        contenders: &["weir"],
        run: adapted::demand::a3,
    },
    Experiment {
        id: "a4",
        title: "texts of 8 KB that are to be compressed, beside a background load",
        contenders: &["weir"],
        run: adapted::demand::a4,
    },
    Experiment {
        id: "images",
        title: "photographs of twelve megapixels, made 512 pixels wide",
        contenders: &["weir"],
        run: images::run,
    },
    Experiment {
        id: "compression",
        title: "texts of 8 KB to 1 MB, compressed once, or anew for every request",
        contenders: &["weir", "nginx", "caddy"],
        run: throughput::compression,
    },
    Experiment {
        id: "rewriting",
        title: "pages of 8 KB to 1 MB with a piece put in, once, or anew for every request",
        contenders: &["weir", "nginx"],
        run: throughput::rewriting,
    },
    Experiment {
        id: "g1",
        title: "250 clients whose connections are limited beside a preferred one",
        contenders: &["weir", "nginx", "haproxy"],
        run: guarded::policing::g1,
    },
    Experiment {
        id: "g2",
        title: "the burst of a greedy client beside a preferred one",
        contenders: &["weir", "nginx"],
        run: guarded::policing::g2,
    },
    Experiment {
        id: "g3",
        title: "three classes of clients by address, more and more of each",
        contenders: &["weir", "haproxy", "nginx"],
        run: guarded::classes::g3,
    },
    Experiment {
        id: "g4",
        title: "three classes of clients of which the top one is limited",
        contenders: &["weir", "haproxy"],
        run: guarded::classes::g4,
    },
    Experiment {
        id: "g5",
        title: "250 clients whose page is limited beside a preferred one",
        contenders: &["weir", "nginx", "haproxy", "envoy"],
        run: guarded::policing::g5,
    },
    Experiment {
        id: "g6",
        title: "two pages of different priority, more and more clients of each",
        contenders: &["weir", "haproxy"],
        run: guarded::classes::g6,
    },
    Experiment {
        id: "g7",
        title: "offered load up to ten times of what an expensive page allows",
        contenders: &["weir", "nginx", "haproxy", "envoy"],
        run: guarded::overload::g7,
    },
    Experiment {
        id: "g8",
        title: "10,000 rules about paths: off, without a match, with a match",
        contenders: &["weir"],
        run: guarded::paths::g8,
    },
    Experiment {
        id: "g9",
        title: "the cost of a decision, in the kernel and about a request",
        contenders: &["weir"],
        run: guarded::decisions::g9,
    },
    Experiment {
        id: "g10",
        title: "the same limit in the kernel, after accept, at the request, and of peers, under a flood",
        contenders: &["weir", "nginx", "haproxy"],
        run: guarded::policing::g10,
    },
];
