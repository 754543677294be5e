//! Compression as a kind of adaptation: a content coding that the client takes, in the operator's
//! order.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use http::header::{self, HeaderName};
use weir_adapt::Step;
use weir_adapt::adapters::compress as codec;
use weir_config::{self as config, CompressFormat};
use weir_http::negotiate::{self, Coding as Accepted};

use super::adapter::{Adapter, Asked, Shape, without};
use super::declared::{Cost, Declaration, Declares, Stage};
use super::work::{Chosen, Work};

/// `compress` of a route.
pub(super) struct Compress {
    settings: config::Compress,
    /// Codings as clients are asked: the operator's, and the original after them.
    accepted: Vec<Accepted>,
}

impl Compress {
    pub(super) fn new(settings: &config::Compress) -> Compress {
        let accepted = settings.formats.iter().map(|format| accepted(format.coding));
        let accepted = accepted.chain([Accepted::Identity]).collect();
        Compress { settings: settings.clone(), accepted }
    }

    /// What a request's client likes best.
    fn format(&self, asked: &Asked<'_>) -> Result<&CompressFormat, &'static str> {
        if asked.forbids_transformation() {
            return Err("no-transform");
        }
        let best = negotiate::accept_encoding(asked.encodings(), &self.accepted);
        let at = self.accepted.iter().position(|coding| Some(*coding) == best);
        at.and_then(|at| self.settings.formats.get(at)).ok_or("not-accepted")
    }
}

impl Declares for Compress {
    fn declaration(&self) -> Option<Declaration> {
        let format = self.settings.formats.first()?;
        let step = codec::Compress { coding: coding(format.coding), level: format.level };
        Some(Declaration {
            name: "compress".into(),
            stage: Stage::Variant,
            takes: self.settings.types.0.clone(),
            key: self.looks_at().iter().map(ToString::to_string).collect(),
            cost: Cost::helpers(Step::Compress(step).ns_per_byte(), self.settings.wait),
            streams: self.settings.stream,
        })
    }
}

impl Adapter for Compress {
    fn takes(&self, shape: &Shape<'_>) -> bool {
        !shape.is_coded
            && shape.len.is_none_or(|len| len >= self.settings.min_size)
            && self.settings.types.have(&shape.content_type)
    }

    fn looks_at(&self) -> &[HeaderName] {
        &[header::ACCEPT_ENCODING]
    }

    fn named<'t>(&self, tag: &'t [u8]) -> Option<&'t [u8]> {
        // Whatever the level was: it stands for the same content.
        let digits = tag.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let tag = &tag[..tag.len() - digits];
        self.settings.formats.iter().find_map(|format| without(tag, format.coding.token()))
    }

    fn streams(&self) -> bool {
        self.settings.stream
    }

    fn stream(
        &self,
        asked: &Asked<'_>,
        _shape: &Shape<'_>,
    ) -> Option<Result<Chosen, &'static str>> {
        self.settings.stream.then(|| {
            let format = self.format(asked)?;
            // A client waits for it: no more effort than that is worth.
            let quick = coding(format.coding).quick_level();
            Ok(chosen(format, format.level.min(quick)))
        })
    }

    fn choose(&self, asked: &Asked<'_>, shape: &Shape<'_>) -> Result<Chosen, &'static str> {
        let format = self.format(asked)?;
        Ok(chosen(format, format.level_for(shape.len_estimate())))
    }

    fn wait(&self) -> Duration {
        self.settings.wait
    }
}

fn chosen(format: &CompressFormat, level: u32) -> Chosen {
    let mut hasher = DefaultHasher::new();
    (format.coding.token(), level).hash(&mut hasher);
    let work = Work::Compress(codec::Compress { coding: coding(format.coding), level });
    Chosen { key: hasher.finish(), work }
}

/// The step of `compress` in a route for content of so many bytes.
pub fn step(format: &CompressFormat, bytes: u64) -> Step {
    Step::Compress(codec::Compress {
        coding: coding(format.coding),
        level: format.level_for(bytes),
    })
}

fn coding(coding: config::Coding) -> codec::Coding {
    match coding {
        config::Coding::Brotli => codec::Coding::Brotli,
        config::Coding::Zstd => codec::Coding::Zstd,
        config::Coding::Gzip => codec::Coding::Gzip,
    }
}

fn accepted(coding: config::Coding) -> Accepted {
    match coding {
        config::Coding::Brotli => Accepted::Brotli,
        config::Coding::Zstd => Accepted::Zstd,
        config::Coding::Gzip => Accepted::Gzip,
    }
}
