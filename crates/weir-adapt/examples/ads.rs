//! How long lists of ads take: to be read, to be asked about a URL for the first time, and again.
//! `cargo run --release -p weir-adapt --example ads [LIST…]`; without a list, a synthetic one of
//! 70,000 rules.

#![allow(clippy::print_stdout, reason = "it is what this program is for")]

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use weir_adapt::ads::{Ads, Kind, Question};

#[path = "../src/ads/synthetic.rs"]
mod synthetic;

/// URLs that are asked about.
const URLS: u32 = 8192;

/// Times that each is asked about again.
const ROUNDS: u32 = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut lists: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let own = std::env::temp_dir().join(format!("weir-ads-{}.txt", std::process::id()));
    if lists.is_empty() {
        std::fs::write(&own, synthetic::large())?;
        lists.push(own.clone());
    }
    let began = Instant::now();
    let ads = Ads::load(&lists);
    let took = began.elapsed();
    if own.exists() {
        std::fs::remove_file(&own)?;
    }
    let ads = ads?;
    for report in ads.reports() {
        let (network, cosmetic, unknown) = (report.network, report.cosmetic, report.unknown);
        println!("{network} rules on requests, {cosmetic} on elements, {unknown} unknown lines");
    }
    println!("read and built: {took:.0?}");
    let targets: Vec<String> =
        (0..URLS).map(|number| format!("/catalogue/item-{number}/picture.jpg?v=3")).collect();
    let ask = |target: &String| {
        let (host, kind, page) = ("shop.example", Kind::Image, "shop.example");
        black_box(ads.verdict(&Question { is_secure: true, host, target, kind, page }));
    };
    let each = |took: Duration, count: u32| took.as_nanos() as f64 / f64::from(count);
    let began = Instant::now();
    targets.iter().for_each(ask);
    println!("a new URL: {:.0} ns", each(began.elapsed(), URLS));
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        // So few that none takes the place of another.
        targets.iter().take(64).for_each(ask);
        best = best.min(each(began.elapsed(), 64));
    }
    println!("one that was asked about before: {best:.0} ns");
    let began = Instant::now();
    black_box(ads.page("shop.example"));
    println!("what a host's pages hide: {:.0?}, and {:.0?} again", began.elapsed(), {
        let began = Instant::now();
        black_box(ads.page("shop.example"));
        began.elapsed()
    });
    Ok(())
}
