//! What the A experiments ask for: the pages of a site, some of which are popular, and texts that
//! are to be adapted. The same bytes for the same number, so that bodies can be checked.

use std::collections::HashMap;
use std::sync::Arc;

use crate::documents::document;
use crate::load::{Ask, Catalogue, Expect};
use crate::photographs::SMALL_SIZE;

/// Popular pages.
pub const POPULAR: u64 = 1_000;
/// Bytes of a text, the original's.
pub const TEXT_SIZE: usize = 8 << 10;
/// What is put into pages where they are rewritten; right behind [`BODY`].
pub const ADDED: &str = "<p>added</p>";

/// Sizes of pages: 11 KB on average, most of them smaller, as the original's.
const SIZES: [usize; 16] = [
    600, 1_000, 1_500, 2_000, 2_500, 3_000, 4_000, 5_000, 6_000, 8_000, 10_000, 12_000, 16_000,
    24_000, 32_000, 52_624,
];
/// How much more popular one page is than the next: that of traces of caches, 0.6 to 0.9.
const SKEW: f64 = 0.8;
/// An item of a page takes no more.
const ITEM_SIZE_MAX: usize = 280;
/// What pages begin and end with.
const HEAD: &str = "<!DOCTYPE html>\n<html>\n<head><title>A page</title></head>\n";
const BODY: &str = "<body>";
const LAST: &str = "<p>";
const END: &str = "</p>\n</body>\n</html>\n";

/// A page of `size` bytes: items with a heading, some text and a link, and a last paragraph.
///
/// # Panics
/// When that is less than its frame takes, some hundred bytes.
#[must_use]
pub fn page(size: usize) -> Vec<u8> {
    let letters = document(size);
    let mut page = [HEAD, BODY, "\n"].concat().into_bytes();
    let mut used = 0;
    let mut next = |count| {
        used += count;
        String::from_utf8_lossy(&letters[used - count..used]).replace('\n', " ")
    };
    while page.len() + ITEM_SIZE_MAX + LAST.len() + END.len() <= size {
        let (title, text, path, name) = (next(20), next(150), next(12), next(16));
        let path = path.replace(' ', "-");
        page.extend_from_slice(
            format!(
                "<div class=\"item\"><h2>{title}</h2>\n<p>{text}</p>\n\
                 <a href=\"/{path}\">{name}</a></div>\n"
            )
            .as_bytes(),
        );
    }
    let left = size - page.len() - LAST.len() - END.len();
    [&page, LAST.as_bytes(), next(left).as_bytes(), END.as_bytes()].concat()
}

/// The same, rewritten.
#[must_use]
pub fn rewritten(size: usize) -> Vec<u8> {
    let page = page(size);
    let (before, after) = page.split_at(HEAD.len() + BODY.len());
    [before, ADDED.as_bytes(), after].concat()
}

/// Path of a page; the application tells its size by it.
#[must_use]
pub fn page_target(size: usize, kind: char, number: u64) -> String {
    format!("/page/{size}/{kind}{number}.html")
}

/// Path of a text of `size` bytes.
#[must_use]
pub fn text_target(size: usize, number: u64) -> String {
    format!("/text/{size}/{number}.txt")
}

/// Path of the same page or text where nobody stores it.
#[must_use]
pub fn live(target: &str) -> String {
    target.replacen('/', "/live-", 1)
}

/// Path of a small picture.
#[must_use]
pub fn picture_target(number: u64) -> String {
    format!("/image/{SMALL_SIZE}/{number}.jpg")
}

/// All pages by their sizes, and how popular they are.
#[derive(Debug)]
pub struct Pages {
    plain: HashMap<usize, Arc<[u8]>>,
    rewritten: HashMap<usize, Arc<[u8]>>,
    /// Of the popular ones, up to 1.
    cumulative: Vec<f64>,
}

impl Pages {
    /// Makes them.
    #[must_use]
    pub fn make() -> Arc<Pages> {
        let all = |make: fn(usize) -> Vec<u8>| SIZES.map(|size| (size, make(size).into())).into();
        let weights = (1..=POPULAR).map(|rank| (rank as f64).powf(-SKEW));
        let mut cumulative: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let total = cumulative.last().copied().unwrap_or(1.0);
        cumulative.iter_mut().for_each(|sum| *sum /= total);
        Arc::new(Pages { plain: all(page), rewritten: all(rewritten), cumulative })
    }

    /// Path and bytes of popular page `rank`, from 0.
    fn popular(&self, rank: u64, bodies: Bodies) -> Ask {
        self.ask('p', rank, bodies)
    }

    fn ask(&self, kind: char, number: u64, bodies: Bodies) -> Ask {
        let size = SIZES[(mixed(number) % SIZES.len() as u64) as usize];
        let body = match bodies {
            Bodies::Plain => self.plain.get(&size),
            Bodies::Rewritten => self.rewritten.get(&size),
            Bodies::Any => None,
        };
        let expect = body.map_or(Expect::Any, |body| Expect::Body(Arc::clone(body)));
        Ask { target: page_target(size, kind, number), fields: "", expect }
    }
}

/// What pages come as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// As they are.
    Plain,
    /// With [`ADDED`].
    Rewritten,
    /// Changed in a way that the lab does not foresee.
    Any,
}

/// Popular pages one after the other, to have them stored.
#[derive(Clone, Debug)]
pub struct Each {
    /// Of these.
    pub pages: Arc<Pages>,
    /// How they come.
    pub bodies: Bodies,
}

impl Catalogue for Each {
    fn ask(&self, number: u64) -> Ask {
        self.pages.popular(number % POPULAR, self.bodies)
    }
}

/// Popular pages as often as they are asked for.
#[derive(Clone, Debug)]
pub struct Popular {
    /// Of these.
    pub pages: Arc<Pages>,
    /// How they come.
    pub bodies: Bodies,
}

impl Catalogue for Popular {
    fn ask(&self, number: u64) -> Ask {
        // The upper 53 bits as a number below 1.
        let uniform = (mixed(number) >> 11) as f64 / (1_u64 << 53) as f64;
        let rank = self.pages.cumulative.partition_point(|sum| *sum <= uniform) as u64;
        self.pages.popular(rank.min(POPULAR - 1), self.bodies)
    }
}

/// Pages that nobody has asked for before.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// Of these.
    pub pages: Arc<Pages>,
    /// How they come.
    pub bodies: Bodies,
}

impl Catalogue for Fresh {
    fn ask(&self, number: u64) -> Ask {
        self.pages.ask('f', number, self.bodies)
    }
}

/// Pages of one size, each of them once.
#[derive(Clone, Debug)]
pub struct Sized {
    /// Bytes of each.
    pub size: usize,
}

impl Catalogue for Sized {
    fn ask(&self, number: u64) -> Ask {
        Ask { target: page_target(self.size, 'n', number), fields: "", expect: Expect::Any }
    }
}

/// Texts, each of them once.
#[derive(Clone, Debug)]
pub struct Texts {
    /// Bytes of each.
    pub size: usize,
    /// What else is in requests for them.
    pub fields: &'static str,
}

impl Catalogue for Texts {
    fn ask(&self, number: u64) -> Ask {
        let target = text_target(self.size, number);
        Ask { target, fields: self.fields, expect: Expect::Any }
    }
}

/// Small pictures, each of them once.
#[derive(Clone, Debug)]
pub struct Small {
    /// What else is in requests for them.
    pub fields: &'static str,
}

impl Catalogue for Small {
    fn ask(&self, number: u64) -> Ask {
        Ask { target: picture_target(number), fields: self.fields, expect: Expect::Any }
    }
}

/// A number that looks like chance (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut value = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_sizes_and_eleven_kilobytes_on_average() {
        for size in SIZES {
            assert_eq!(page(size).len(), size);
            let text = String::from_utf8(rewritten(size)).unwrap();
            assert!(text.contains("<body><p>added</p>\n<"), "{text}");
        }
        assert_eq!(SIZES.iter().sum::<usize>() / SIZES.len(), 11 << 10);
        let pages = Pages::make();
        let popular = Popular { pages: pages.clone(), bodies: Bodies::Plain };
        let size = |number| match popular.ask(number).expect {
            Expect::Body(body) => body.len(),
            Expect::Any => 0,
        };
        let mean = (0..100_000).map(size).sum::<usize>() / 100_000;
        assert!((8_000..15_000).contains(&mean), "{mean}");
    }

    #[test]
    fn some_pages_are_more_popular_than_others_and_fresh_ones_are_new() {
        let pages = Pages::make();
        let popular = Popular { pages: pages.clone(), bodies: Bodies::Plain };
        let mut counts: HashMap<String, u32> = HashMap::new();
        for number in 0..100_000 {
            *counts.entry(popular.ask(number).target).or_default() += 1;
        }
        let first = pages.popular(0, Bodies::Plain).target;
        let last = pages.popular(POPULAR - 1, Bodies::Plain).target;
        let (first, last) = (counts[&first], counts.get(&last).copied().unwrap_or_default());
        assert!(first > 20 * last.max(1), "{first} and {last}");
        let fresh = Fresh { pages, bodies: Bodies::Plain };
        let targets: Vec<String> = (0..1_000).map(|number| fresh.ask(number).target).collect();
        assert!(targets.iter().all(|target| !counts.contains_key(target)));
        assert_ne!(targets[0], targets[1]);
    }
}
