//! Which variant of a stored response fits which requests, as it was worked out at the first of
//! each kind and kept with the original. It says no more than [`adapt::fit`] would: whether the
//! variant is there is looked up at every hit, and where it is not, or is a draft, the full path
//! goes on.

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};

use weir_cache::{Annex, Object};
use weir_guard::Settled;
use weir_http::head::Head;

use super::adapt::{self, Fitted};
use super::fast::Plain;
use super::prepared::{self, HeadOf, Kept, Lines, Prepared};
use super::reply::HitFields;
use crate::adapt::{Asked, Offers, Plan, is_draft};
use crate::connection::Connection;

/// So many kinds of requests are told apart for one original. Browsers differ in little: those of
/// one maker send the same.
const CHOICES_MAX: usize = 8;

/// Longest that the fields of a request may be that adapters look at, with what is between them.
const WISH_BYTES_MAX: usize = 256;

/// When there are as many as may be, the oldest goes no more often than this: whoever makes up
/// fields has others' hits worked out anew once in a while, not at every request of his.
const PAUSE_MS: u64 = 250;

/// What is kept with an original that adapters concern.
struct Choices {
    /// The configuration that they were made under.
    generation: u64,
    /// What rules made of the path.
    settled: Arc<Settled>,
    /// The oldest first.
    made: Vec<Arc<Choice>>,
    changed_ms: u64,
}

/// What requests of one kind get.
struct Choice {
    /// What they say, as [`Wish`] has it.
    wish: Box<[u8]>,
    what: What,
}

enum What {
    /// The original; why, and the head that says so.
    Original(&'static str, Arc<Lines>),
    /// The variant with this fingerprint, and whether it is another page.
    Variant(u64, bool),
}

/// What is kept with a variant.
struct VariantHead {
    /// The original whose fields are in it. It may be replaced while its body, and what is made of
    /// that, stays.
    original: Weak<Object>,
    lines: Lines,
}

/// What of a stored response is sent on the fast path.
pub(super) enum Fit {
    AsItIs,
    /// The original, with this head.
    Original(Arc<Lines>),
    Variant {
        object: Arc<Object>,
        is_another: bool,
        kept: Kept,
    },
}

/// What was kept of what rules made of the path.
pub(super) fn settled(kept: &Kept) -> Option<&Settled> {
    Prepared::of(kept).map(|kept| &kept.settled).or_else(|| Some(&*Choices::of(kept)?.settled))
}

/// Whether something was kept of an original that adapters concern under a configuration.
pub(super) fn are_kept(kept: &Kept, generation: u64) -> bool {
    Choices::of(kept).is_some_and(|kept| kept.generation == generation)
}

/// What a request gets of an original that adapters concern, as far as that is known and there.
pub(super) fn fit(plain: &Plain<'_, '_, '_>, original: &Object, kept: &Kept) -> Option<Fit> {
    let Plain { connection, head, request, route, now_ms, .. } = *plain;
    let offers = route.offers.as_deref()?;
    let wish = Wish::of(offers, head, &request.host.name)?;
    let known = Choices::of(kept).filter(|kept| kept.generation == plain.live.generation);
    let learnt;
    let choice = match known.and_then(|known| known.find(&wish)) {
        Some(choice) => choice,
        None => {
            learnt = learn(plain, offers, original, (known, &wish))?;
            &learnt
        }
    };
    let (fingerprint, is_another) = match &choice.what {
        What::Original(_, lines) => return Some(Fit::Original(Arc::clone(lines))),
        What::Variant(fingerprint, is_another) => (*fingerprint, *is_another),
    };
    let from = NonZeroU64::new(original.body().id())?;
    let key = adapt::key_of(original, fingerprint);
    let object = connection.worker.shared.cache.derived(&key, from, now_ms)?;
    let kept = object.annex().load();
    if VariantHead::of(&kept).is_none() && is_draft(&object) {
        return None;
    }
    route.variants.touch(fingerprint, now_ms);
    Some(Fit::Variant { object, is_another, kept })
}

/// Works out what requests of a new kind get, and keeps it.
fn learn(
    plain: &Plain<'_, '_, '_>,
    offers: &Offers,
    original: &Object,
    (known, wish): (Option<&Choices>, &Wish),
) -> Option<Arc<Choice>> {
    let Plain { connection, head, live, route, path, now_ms, .. } = *plain;
    let is_full = |known: &Choices| known.made.len() >= CHOICES_MAX;
    if known.is_some_and(|known| is_full(known) && known.changed_ms + PAUSE_MS > now_ms) {
        return None;
    }
    let own = HitFields::of(route, original, now_ms);
    if !prepared::keeps(route, &own) {
        return None;
    }
    let parts = head.to_parts()?;
    let asked = Asked::new(&parts.uri, &parts.headers);
    let what = match offers.plan(&asked, adapt::shape(original)) {
        Plan::AsItIs => return None,
        Plan::Variant(variant) => What::Variant(variant.fingerprint, variant.changes_pages()),
        Plan::Original(why) => {
            let same = known.and_then(|known| known.original(why));
            let lines = same.or_else(|| {
                let kept = &original.annex().load();
                let hit = HeadOf { live, route, object: original, kept, path, now_ms, last: false };
                let headers = adapt::left(offers, original, why);
                Lines::new(&hit, headers, original.body().len()).map(Arc::new)
            });
            What::Original(why, lines?)
        }
    };
    let choice = Arc::new(Choice { wish: wish.bytes().into(), what });
    let guard = &connection.worker.shared.guard;
    let settled = known.map(|known| Arc::clone(&known.settled));
    let settled = settled.filter(|settled| guard.is_current(settled));
    let mut made = known.map_or(Vec::new(), |known| known.made.clone());
    if made.len() >= CHOICES_MAX {
        made.remove(0);
    }
    made.push(Arc::clone(&choice));
    let settled = settled.unwrap_or_else(|| Arc::new(guard.settle(path)));
    let choices = Choices { generation: live.generation, settled, made, changed_ms: now_ms };
    original.annex().store(Some(Arc::new(Box::new(choices) as Annex)));
    Some(choice)
}

/// The head of what is sent, and that if it is another object than the original.
pub(super) fn write_head(
    connection: &Connection,
    hit: &HeadOf<'_>,
    original: &Arc<Object>,
    fit: Fit,
) -> Option<(Vec<u8>, Option<Arc<Object>>)> {
    let guard = &connection.worker.shared.guard;
    if let Some(known) = Choices::of(hit.kept)
        && !guard.is_current(&known.settled)
    {
        let (settled, made) = (Arc::new(guard.settle(hit.path)), known.made.clone());
        let anew = Choices { settled, made, ..*known };
        original.annex().store(Some(Arc::new(Box::new(anew) as Annex)));
    }
    let own = HitFields::of(hit.route, original, hit.now_ms);
    let (object, is_another, kept) = match fit {
        Fit::AsItIs => return None,
        Fit::Original(lines) => return Some((lines.write(hit, Some(&own)), None)),
        Fit::Variant { object, is_another, kept } => (object, is_another, kept),
    };
    let is_of = |kept: &&VariantHead| {
        kept.lines.is_of(hit.live.generation) && std::ptr::eq(kept.original.as_ptr(), &**original)
    };
    if let Some(kept) = VariantHead::of(&kept).filter(is_of) {
        return Some((kept.lines.write(hit, Some(&own)), Some(object)));
    }
    let fitted = Fitted::varied(Arc::clone(original), Arc::clone(&object), is_another);
    let headers = fitted.headers(hit.route.offers.as_deref())?;
    let lines = Lines::new(hit, headers, object.body().len())?;
    let head = lines.write(hit, Some(&own));
    let kept = VariantHead { original: Arc::downgrade(original), lines };
    object.annex().store(Some(Arc::new(Box::new(kept) as Annex)));
    Some((head, Some(object)))
}

impl Choices {
    fn of(kept: &Kept) -> Option<&Choices> {
        kept.as_ref()?.downcast_ref()
    }

    fn find(&self, wish: &Wish) -> Option<&Arc<Choice>> {
        self.made.iter().find(|choice| *choice.wish == *wish.bytes())
    }

    /// The head that is kept of the original, where it is sent for a reason.
    fn original(&self, why: &str) -> Option<Arc<Lines>> {
        self.made.iter().find_map(|choice| match &choice.what {
            What::Original(known, lines) if *known == why => Some(Arc::clone(lines)),
            _ => None,
        })
    }
}

impl VariantHead {
    fn of(kept: &Kept) -> Option<&VariantHead> {
        kept.as_ref()?.downcast_ref()
    }
}

/// What a request says that adapters look at, as it was sent: the values of their fields, one after
/// the other.
struct Wish {
    bytes: [u8; WISH_BYTES_MAX],
    len: usize,
}

/// Ends a value; there is none in any.
const END: u8 = b'\n';

/// Stands for a value that was not sent.
const NONE: u8 = 0;

impl Wish {
    /// `None` if it is long, or a field came more than once.
    fn of(offers: &Offers, head: &Head<'_, '_>, host: &str) -> Option<Wish> {
        let mut wish = Wish { bytes: [0; WISH_BYTES_MAX], len: 0 };
        for name in offers.looks_at() {
            let mut values = head.values(name.as_str());
            match values.next() {
                Some(value) => wish.add(value)?,
                None => wish.add(&[NONE])?,
            }
            if values.next().is_some() {
                return None;
            }
        }
        if offers.looks_at_host() {
            wish.add(host.as_bytes())?;
        }
        Some(wish)
    }

    fn add(&mut self, value: &[u8]) -> Option<()> {
        let (end, after) = (self.len + value.len(), self.len + value.len() + 1);
        self.bytes.get_mut(self.len..end)?.copy_from_slice(value);
        *self.bytes.get_mut(end)? = END;
        self.len = after;
        Some(())
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use weir_config as config;
    use weir_http::head::{self, Room};

    use super::*;

    fn wish(offers: &Offers, fields: &str) -> Option<Vec<u8>> {
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let mut room = Room::new();
        let head = head::parse(text.as_bytes(), &mut room, 8192, 100).unwrap();
        Some(Wish::of(offers, &head, "a")?.bytes().to_vec())
    }

    #[test]
    fn requests_are_of_one_kind_if_they_say_the_same() {
        let (image, compress) = (Some(config::Image::default()), Some(config::Compress::default()));
        let settings = config::RouteAdapt { image, compress, ..Default::default() };
        let offers = Offers::new(&settings, None, &config::ImageLimits::default());
        let offers = offers.unwrap().unwrap();
        let kinds = [
            "",
            "Accept: x\r\n",
            "Accept-Encoding: x\r\n",
            "Accept:\r\n",
            "Accept-Encoding:\r\n",
            "Accept: x\r\nAccept-Encoding: x\r\n",
            "Accept: X\r\nAccept-Encoding: x\r\n",
        ];
        for (at, one) in kinds.iter().enumerate() {
            let same = format!("X-Other: y\r\n{one}").replace("Accept", "ACCEPT");
            assert_eq!(wish(&offers, one), wish(&offers, &same), "{one}");
            for other in &kinds[at + 1..] {
                assert_ne!(wish(&offers, one), wish(&offers, other), "{one} and {other}");
            }
        }
        assert_eq!(wish(&offers, "Accept: x\r\naccept: x\r\n"), None);
        // With what stands for the other field, and the ends of both.
        let long = |len| wish(&offers, &format!("Accept: {}\r\n", "x".repeat(len)));
        assert!(long(WISH_BYTES_MAX - 3).is_some() && long(WISH_BYTES_MAX - 2).is_none());
    }
}
