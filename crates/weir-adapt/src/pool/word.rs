//! What a helper says of a job, as far as it is taken at its word: helpers work on what others have
//! sent, and may have fallen to them.

use std::io;

use crate::job::{Limits, Outcome};
use crate::wire::{self, BEHIND_BYTES_MAX, End, Place, Report};

/// Characters of what a helper says.
const WORDS_MAX: usize = 256;

/// What it has said.
#[derive(Debug)]
pub(super) enum Word<'a> {
    /// This is the result.
    Behind { result: &'a [u8], detail: String },
    /// The result is in the file.
    File { len: u64, detail: String },
    /// There is none.
    Ended(Outcome),
    /// Nothing yet: it had no file for the result.
    NoFile,
}

/// Takes the end of a job at its word, within limits; its result, if that is small, off `rest`.
///
/// # Errors
/// `InvalidData` if so much is not there: then nobody knows what belongs to the next one.
pub(super) fn judge<'a>(end: End, rest: &mut &'a [u8], limits: &Limits) -> io::Result<Word<'a>> {
    let failed = |what: String| Ok(Word::Ended(Outcome::Failed(what)));
    let (place, detail) = match end {
        End::Made { place, detail } => (place, plain(&detail)),
        End::Original { why } => return Ok(Word::Ended(Outcome::Original(why.as_str()))),
        End::Failed { what } => return failed(plain(&what)),
        End::NoFile => return Ok(Word::NoFile),
    };
    let (len, word) = match place {
        Place::Behind { len } => (len, Word::Behind { result: take(rest, len)?, detail }),
        // Each file is a descriptor and a mapping, of which there are only so many.
        Place::File { len } if len <= BEHIND_BYTES_MAX as u64 => {
            return failed(format!("a file for {len} bytes"));
        }
        Place::File { len } => (len, Word::File { len, detail }),
    };
    if len > limits.output_bytes {
        return failed(format!("{len} bytes, of {} allowed", limits.output_bytes));
    }
    Ok(word)
}

/// What the end of a job is taken for: a result of so many bytes, and what was done; or none,
/// perhaps since there was no file for it.
pub type Judged = Result<(u64, String), Option<Outcome>>;

/// What the pool takes a helper's packet for, before it looks at results in files. For those who
/// try what this withstands.
///
/// # Errors
/// `InvalidData` for what is no report on jobs; a helper that sends it is ended.
pub fn judge_packet(packet: &[u8], limits: &Limits) -> io::Result<Vec<Judged>> {
    let (report, mut rest) = wire::parse(packet)?;
    let Report::Done(ends) = report else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "no report on jobs"));
    };
    let judge = |end| {
        Ok(match judge(end, &mut rest, limits)? {
            Word::Behind { result, detail } => Ok((result.len() as u64, detail)),
            Word::File { len, detail } => Ok((len, detail)),
            Word::Ended(outcome) => Err(Some(outcome)),
            Word::NoFile => Err(None),
        })
    };
    ends.into_iter().map(judge).collect()
}

fn take<'a>(rest: &mut &'a [u8], len: u64) -> io::Result<&'a [u8]> {
    let split = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len));
    let (result, left) = split.ok_or_else(|| {
        let what = format!("a result of {len} bytes, of which {} came", rest.len());
        io::Error::new(io::ErrorKind::InvalidData, what)
    })?;
    *rest = left;
    Ok(result)
}

/// What a helper says, fit for a header field or a log: it may be under somebody else's control.
fn plain(text: &str) -> String {
    text.chars().filter(|c| matches!(c, ' '..='~')).take(WORDS_MAX).collect()
}
