//! What an edit list asks for, checked against the hook that it comes from. A list is read as a
//! whole before anything is changed, so that a wrong one changes nothing.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, StatusCode};
use weir_config::PluginPolicy;

use super::edits::{Edit, EditError, Edits};
use super::fields::{self, Section};
use super::hook::{Hook, Side};
use super::ops::Op;
use crate::exchange::{Answer, Want};
use crate::limits::{HELD_BYTES_MAX, VERDICT_BYTES_MAX};
use crate::services::Services;

/// Bytes that a plugin may add to a cache key.
const KEY_BYTES_MAX: usize = 1024;

/// Bytes of a target.
const TARGET_BYTES_MAX: usize = 64 << 10;

/// How long a hold lasts that does not say it.
const HOLD_DEFAULT: Duration = Duration::from_secs(5);

/// Where a list comes from, and what it meets.
pub(crate) struct Place<'a> {
    /// The hook whose edits are allowed; in `weir_on_call` the one that holds the request.
    pub(crate) hook: Hook,
    /// It comes from `weir_on_call`.
    pub(crate) in_call: bool,
    /// Bytes of the piece that the hook was shown.
    pub(crate) piece_len: usize,
    /// It was the last.
    pub(crate) end: bool,
    /// Counts the lines of the section that the hook's field edits change.
    pub(crate) lines: &'a dyn Fn() -> usize,
    pub(crate) policy: &'a PluginPolicy,
    pub(crate) services: &'a dyn Services,
}

/// A change of a section.
#[derive(Clone, Debug)]
pub(crate) enum FieldChange {
    Set(HeaderName, HeaderValue),
    Add(HeaderName, HeaderValue),
    Remove(HeaderName),
}

/// A part of what a piece becomes.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    New(Bytes),
    Old(Range<usize>),
}

/// What a list asks for.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) fields: Vec<FieldChange>,
    pub(crate) trailers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) method: Option<Method>,
    pub(crate) target: Option<String>,
    pub(crate) authority: Option<String>,
    pub(crate) status: Option<StatusCode>,
    pub(crate) answer: Option<Answer>,
    pub(crate) body: Option<Vec<Part>>,
    pub(crate) keep: usize,
    pub(crate) want: Option<Want>,
    pub(crate) note: Option<u64>,
    pub(crate) hold: Option<Duration>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) cache: Option<CacheMode>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) upstream: Option<String>,
    pub(crate) verdict: Option<String>,
    pub(crate) close: bool,
    pub(crate) reroute: bool,
    pub(crate) no_store: bool,
    pub(crate) resume: bool,
    body_len: usize,
}

/// CACHE's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheMode {
    Usual,
    Pass,
    Validate,
}

/// Reads a list.
///
/// # Errors
/// The first record that is malformed, out of place, or asks for what may not be.
pub(crate) fn read(edits: Edits<'_>, place: &Place<'_>) -> Result<Changes, EditError> {
    let mut changes = Changes::default();
    let mut lines = None;
    let mut last = None;
    for edit in edits {
        let edit = edit?;
        match &mut changes.answer {
            Some(answer) => match edit.op() {
                Op::Note => changes.note = Some(edit.number()),
                _ => build_answer(answer, &edit)?,
            },
            None => {
                allowed(&edit, place)?;
                changes.take(&edit, place, &mut lines)?;
            }
        }
        last = Some(edit);
    }
    if let Some(last) = last {
        changes.agree(&last)?;
    }
    Ok(changes)
}

fn allowed(edit: &Edit<'_>, place: &Place<'_>) -> Result<(), EditError> {
    if place.in_call && matches!(edit.op(), Op::Note | Op::Resume) {
        return Ok(());
    }
    if place.in_call && matches!(edit.op(), Op::Body | Op::Piece | Op::Keep) {
        return Err(edit.error("not allowed in weir_on_call: the body's own hook says it"));
    }
    match edit.spec.hooks.has(place.hook) {
        true => Ok(()),
        false => Err(edit.error(format!("not allowed in {}", place.hook.export()))),
    }
}

/// A record after ANSWER.
fn build_answer(answer: &mut Answer, edit: &Edit<'_>) -> Result<(), EditError> {
    if !edit.spec.in_answer {
        return Err(edit.error("expected SET, ADD, BODY, TRAILER or NOTE after ANSWER"));
    }
    let mut lines = answer.headers.len() + answer.trailers.len();
    fields::count(edit, &mut lines)?;
    match edit.op() {
        Op::Set => {
            let (name, value) = fields::line(edit, Section::ResponseHead)?;
            answer.headers.insert(name, value);
        }
        Op::Add => {
            let (name, value) = fields::line(edit, Section::ResponseHead)?;
            answer.headers.append(name, value);
        }
        Op::Trailer => {
            let (name, value) = fields::line(edit, Section::Trailers)?;
            answer.trailers.append(name, value);
        }
        Op::Body => answer.body = joined(std::mem::take(&mut answer.body), edit)?,
        // NOTE is not about the answer, and nothing else is in the table.
        _ => {}
    }
    Ok(())
}

/// A body with one more part.
pub(crate) fn joined(body: Bytes, edit: &Edit<'_>) -> Result<Bytes, EditError> {
    let more = edit.bytes();
    if body.len() + more.len() > HELD_BYTES_MAX {
        return Err(edit.error(format!("a body has at most {HELD_BYTES_MAX} bytes")));
    }
    Ok(match body.is_empty() {
        true => Bytes::copy_from_slice(more),
        false => [&body[..], more].concat().into(),
    })
}

impl Changes {
    fn take(
        &mut self,
        edit: &Edit<'_>,
        place: &Place<'_>,
        lines: &mut Option<usize>,
    ) -> Result<(), EditError> {
        match edit.op() {
            Op::Set => {
                fields::count(edit, lines.get_or_insert_with(place.lines))?;
                let (name, value) = fields::line(edit, place.section())?;
                self.fields.push(FieldChange::Set(name, value));
            }
            Op::Add => {
                fields::count(edit, lines.get_or_insert_with(place.lines))?;
                let (name, value) = fields::line(edit, place.section())?;
                self.fields.push(FieldChange::Add(name, value));
            }
            Op::Remove => {
                self.fields.push(FieldChange::Remove(fields::name(edit, place.section())?));
            }
            Op::Trailer => {
                fields::count(edit, lines.get_or_insert_with(place.lines))?;
                self.trailers.push(fields::line(edit, Section::Trailers)?);
            }
            Op::Method => self.method = Some(method(edit)?),
            Op::Target => self.target = Some(target(edit)?),
            Op::Authority => self.authority = Some(authority(edit)?),
            Op::Status => self.status = Some(status(edit)?),
            Op::Answer => {
                self.answer = Some(Answer { status: status(edit)?, ..Answer::default() });
            }
            Op::Body => self.part(edit, Part::New(Bytes::copy_from_slice(edit.bytes())))?,
            Op::Piece => self.part(edit, Part::Old(piece(edit, place)?))?,
            Op::Keep => self.keep = keep(edit, place)?,
            Op::Want => self.want = Some(want(edit, place)?),
            Op::Note => self.note = Some(edit.number()),
            Op::Hold => self.hold = Some(hold(edit)),
            Op::Key => self.key = Some(key(edit)?),
            Op::Cache => {
                self.cache = Some(match edit.number() {
                    0 => CacheMode::Usual,
                    1 => CacheMode::Pass,
                    _ => CacheMode::Validate,
                });
            }
            Op::Ttl => self.ttl_ms = Some(edit.number()),
            Op::Upstream => self.upstream = Some(upstream(edit, place)?),
            Op::Verdict => self.verdict = Some(verdict(edit)?),
            Op::Close => self.close = true,
            Op::Route => self.reroute = true,
            Op::NoStore => self.no_store = true,
            Op::Resume => self.resume = true,
        }
        Ok(())
    }

    fn part(&mut self, edit: &Edit<'_>, part: Part) -> Result<(), EditError> {
        self.body_len += match &part {
            Part::New(bytes) => bytes.len(),
            Part::Old(range) => range.len(),
        };
        if self.body_len > HELD_BYTES_MAX {
            return Err(edit.error(format!("a piece becomes at most {HELD_BYTES_MAX} bytes")));
        }
        let parts = self.body.get_or_insert_default();
        let empty = matches!(&part, Part::New(bytes) if bytes.is_empty());
        if !empty {
            parts.push(part);
        }
        Ok(())
    }

    /// What only the whole list shows.
    fn agree(&self, last: &Edit<'_>) -> Result<(), EditError> {
        let ends = self.answer.is_some() || self.close;
        let error =
            |mistake: &str| Err(EditError { op: "the whole list".into(), ..last.error(mistake) });
        if self.hold.is_some() && ends {
            return error("HOLD cannot stand beside ANSWER or CLOSE");
        }
        if self.hold.is_some() && self.resume {
            return error("HOLD cannot stand beside RESUME");
        }
        if self.hold.is_some() && (self.body.is_some() || self.keep > 0) {
            return error(
                "HOLD shows the same piece again, so BODY, PIECE and KEEP cannot stand beside it",
            );
        }
        if self.keep > 0 && self.want == Some(Want::Nothing) {
            return error("KEEP waits for a next piece, but WANT says that none is to be shown");
        }
        Ok(())
    }
}

impl Place<'_> {
    fn section(&self) -> Section {
        match self.hook {
            hook if hook.shows_trailers() => Section::Trailers,
            hook if hook.side() == Side::Response => Section::ResponseHead,
            _ => Section::RequestHead,
        }
    }
}

/// Text, for the parsers of `http`.
fn text<'a>(edit: &Edit<'a>, what: &str) -> Result<&'a str, EditError> {
    let bytes = edit.bytes();
    std::str::from_utf8(bytes).map_err(|_| refuse(edit, what))
}

fn refuse(edit: &Edit<'_>, what: &str) -> EditError {
    let bytes = edit.bytes();
    let cut = bytes[..bytes.len().min(80)].escape_ascii();
    edit.error(format!("expected {what}, found \"{cut}\""))
}

/// A request's method.
pub(crate) fn method(edit: &Edit<'_>) -> Result<Method, EditError> {
    let expected = "a method other than CONNECT";
    match Method::from_bytes(edit.bytes()) {
        Ok(method) if method != Method::CONNECT => Ok(method),
        _ => Err(refuse(edit, expected)),
    }
}

/// A request's target.
pub(crate) fn target(edit: &Edit<'_>) -> Result<String, EditError> {
    let expected = "a path that begins with /, and a query, percent-encoded; or *";
    let text = text(edit, expected)?;
    let begins = text.starts_with('/') || text == "*";
    let clean = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !begins || !clean || text.len() > TARGET_BYTES_MAX || text.parse::<PathAndQuery>().is_err() {
        return Err(refuse(edit, expected));
    }
    Ok(text.to_owned())
}

/// A request's authority.
pub(crate) fn authority(edit: &Edit<'_>) -> Result<String, EditError> {
    let expected = "a host and maybe a port";
    let text = text(edit, expected)?;
    match text.parse::<Authority>() {
        Ok(_) if !text.contains('@') => Ok(text.to_owned()),
        _ => Err(refuse(edit, expected)),
    }
}

/// The status of a final response.
pub(crate) fn status(edit: &Edit<'_>) -> Result<StatusCode, EditError> {
    let number = edit.number();
    u16::try_from(number)
        .ok()
        .filter(|number| (200..=599).contains(number))
        .and_then(|number| StatusCode::from_u16(number).ok())
        .ok_or_else(|| edit.error(format!("expected a status from 200 to 599, found {number}")))
}

fn piece(edit: &Edit<'_>, place: &Place<'_>) -> Result<Range<usize>, EditError> {
    let super::edits::Value::Span(start, len) = edit.value else { return Ok(0..0) };
    let (start, len) = (start as usize, len as usize);
    match start.saturating_add(len) <= place.piece_len {
        true => Ok(start..start + len),
        false => Err(edit
            .error(format!("{len} bytes from {start} on, but the piece has {}", place.piece_len))),
    }
}

fn keep(edit: &Edit<'_>, place: &Place<'_>) -> Result<usize, EditError> {
    let keep = edit.number_u32() as usize;
    if place.end && keep > 0 {
        return Err(edit.error("nothing comes after the last piece"));
    }
    match keep <= place.piece_len {
        true => Ok(keep),
        false => Err(edit.error(format!("{keep} bytes, but the piece has {}", place.piece_len))),
    }
}

fn want(edit: &Edit<'_>, place: &Place<'_>) -> Result<Want, EditError> {
    let want = match edit.number() {
        0 => return Ok(Want::Nothing),
        _ if place.hook.shows_body() => {
            return Err(edit.error("expected 0: the body is shown already"));
        }
        1 => Want::Pieces,
        _ => Want::Whole,
    };
    let (allowed, what) = match place.hook.side() {
        Side::Request => (place.policy.allow.request_body, "requests"),
        Side::Response => (place.policy.allow.response_body, "responses"),
    };
    match allowed {
        true => Ok(want),
        false => Err(edit.error(format!("the plugin may not see bodies of {what}"))),
    }
}

fn hold(edit: &Edit<'_>) -> Duration {
    match edit.number() {
        0 => HOLD_DEFAULT,
        ms => Duration::from_millis(ms),
    }
}

fn key(edit: &Edit<'_>) -> Result<Vec<u8>, EditError> {
    let key = edit.bytes();
    match key.len() <= KEY_BYTES_MAX {
        true => Ok(key.to_vec()),
        false => {
            Err(edit.error(format!("{} bytes, and at most {KEY_BYTES_MAX} are taken", key.len())))
        }
    }
}

fn upstream(edit: &Edit<'_>, place: &Place<'_>) -> Result<String, EditError> {
    let name = text(edit, "an upstream's name")?;
    if !place.policy.allow.upstreams.contains(name) {
        return Err(edit.error(format!("the plugin may not use the upstream {name:?}")));
    }
    match place.services.has_upstream(name) {
        true => Ok(name.to_owned()),
        false => Err(edit.error(format!("there is no upstream {name:?}"))),
    }
}

fn verdict(edit: &Edit<'_>) -> Result<String, EditError> {
    let verdict = text(edit, "a verdict")?;
    match verdict.len() <= VERDICT_BYTES_MAX {
        true => Ok(verdict.to_owned()),
        false => Err(edit.error(format!("a verdict has at most {VERDICT_BYTES_MAX} bytes"))),
    }
}

/// Changes a section.
pub(crate) fn change_fields(headers: &mut HeaderMap, changes: Vec<FieldChange>) {
    for change in changes {
        match change {
            FieldChange::Set(name, value) => {
                headers.insert(name, value);
            }
            // Far below what a map can hold: see FIELDS_MAX.
            FieldChange::Add(name, value) => {
                headers.append(name, value);
            }
            FieldChange::Remove(name) => {
                headers.remove(name);
            }
        }
    }
}
