//! The plugin: which responses, and what becomes of their bodies' pieces.

use alloc::string::String;

use weir_plugin_sdk::{Decimal, Edits, Frame, Hook, Parts, Plugin, Want, weir_plugin};

use crate::gray::transcode;
use crate::ppm::{Header, header};

/// The transcoder. It has nothing to remember but where in a picture a response is, which is in
/// the response's note.
struct Gray;

/// Where in the body the next piece begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// At a picture's header.
    Header,
    /// Before so many bytes of pixels.
    Pixels(u64),
    /// In something that is no picture.
    Elsewhere,
}

impl At {
    fn of(note: u64) -> At {
        match (note & 3, note >> 2) {
            (0, _) => At::Header,
            (1, left) => At::Pixels(left),
            _ => At::Elsewhere,
        }
    }

    fn note(self) -> u64 {
        match self {
            At::Header => 0,
            At::Pixels(left) => left << 2 | 1,
            At::Elsewhere => 2,
        }
    }
}

/// Fields that describe the content as it was.
const OUTDATED: [&str; 6] =
    ["accept-ranges", "content-digest", "content-md5", "digest", "etag", "repr-digest"];

impl Plugin for Gray {
    fn configure(_config: &[u8]) -> Result<Gray, String> {
        Ok(Gray)
    }

    fn wants(&self, hook: Hook) -> Parts {
        match hook {
            Hook::Response => Parts::STATUS | Parts::RESPONSE,
            _ => Parts::BODY,
        }
    }

    fn on_response(&mut self, frame: &Frame<'_>, edits: &mut Edits) {
        let response = frame.response();
        let kind = response.field("content-type").unwrap_or_default();
        let is_whole = response.status() == 200 && response.field("content-encoding").is_none();
        if !is_whole || !is_pixmap(kind) {
            return;
        }
        edits.set("content-type", "image/x-portable-graymap").want(Want::Pieces);
        for name in OUTDATED {
            if response.field(name).is_some() {
                edits.remove(name);
            }
        }
    }

    fn on_response_body(&mut self, frame: &Frame<'_>, edits: &mut Edits) {
        let piece = frame.body();
        let note = gray(At::of(frame.note()), piece, frame.is_end(), edits).note();
        if note != frame.note() {
            edits.note(note);
        }
    }
}

/// Whether a content type, with or without parameters, is that of PPM.
fn is_pixmap(kind: &[u8]) -> bool {
    const PIXMAP: &[u8] = b"image/x-portable-pixmap";
    kind.split_at_checked(PIXMAP.len()).is_some_and(|(kind, parameters)| {
        kind.eq_ignore_ascii_case(PIXMAP)
            && matches!(parameters.trim_ascii_start(), [] | [b';', ..])
    })
}

/// What becomes of a piece.
fn gray(mut at: At, piece: &[u8], is_last: bool, edits: &mut Edits) -> At {
    let mut done = 0;
    while done < piece.len() {
        let rest = &piece[done..];
        match at {
            At::Header => match header(rest) {
                Header::Complete { len, width, height } => {
                    let [across, down] = [Decimal::new(width.into()), Decimal::new(height.into())];
                    edits.body("P5\n").body(across).body(" ").body(down).body("\n255\n");
                    done += len;
                    at = At::Pixels(3 * u64::from(width) * u64::from(height));
                }
                Header::Incomplete if !is_last => {
                    if done == 0 {
                        // Nothing of the piece goes on yet.
                        edits.body([]);
                    }
                    edits.keep(rest.len());
                    return at;
                }
                Header::Incomplete | Header::Other => at = At::Elsewhere,
            },
            At::Pixels(left) => {
                let here = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                let whole = here / 3;
                edits.body_with(whole, |grey| {
                    transcode(&rest[..3 * whole], grey);
                    whole
                });
                done += 3 * whole;
                at = match left - 3 * whole as u64 {
                    0 => At::Header,
                    left => At::Pixels(left),
                };
                if here % 3 > 0 {
                    // A pixel that ends nowhere is none.
                    if !is_last {
                        edits.keep(here % 3);
                    }
                    return at;
                }
            }
            At::Elsewhere => {
                if done > 0 {
                    edits.piece(done..piece.len());
                }
                return at;
            }
        }
    }
    at
}

weir_plugin!(Gray: on_response, on_response_body);
weir_plugin_sdk::allocator!();
weir_plugin_sdk::panic_handler!();

#[cfg(test)]
mod tests {
    use weir_plugin_sdk::testing::Sample;

    use super::*;

    /// Of a picture whose sides have one digit each.
    const GREY_HEADER: &str =
        "BODY 3 bytes; BODY 1 bytes; BODY 1 bytes; BODY 1 bytes; BODY 5 bytes";

    fn response(content_type: &str, status: u16) -> String {
        let sample = Sample::new()
            .hook(Hook::Response)
            .status(status)
            .response_field("content-type", content_type)
            .response_field("etag", "\"1\"");
        let mut edits = Edits::new();
        sample.show(|frame| Gray.on_response(frame, &mut edits));
        edits.to_string()
    }

    #[test]
    fn pictures_are_told_by_their_type() {
        let edits = "SET content-type: image/x-portable-graymap; WANT 1; REMOVE etag";
        assert_eq!(response("image/x-portable-pixmap", 200), edits);
        assert_eq!(response("IMAGE/X-Portable-Pixmap; x=y", 200), edits);
        assert_eq!(response("image/x-portable-pixmap ;x=y", 200), edits);
        assert_eq!(response("image/x-portable-pixmaps", 200), "");
        assert_eq!(response("image/x-portable-pix", 200), "");
        assert_eq!(response("image/png", 200), "");
        assert_eq!(response("image/x-portable-pixmap", 206), "");
    }

    #[test]
    fn pieces_become_grey() {
        let piece = b"P6\n2 1\n255\nabcdef";
        let mut edits = Edits::new();
        assert_eq!(gray(At::Header, piece, true, &mut edits), At::Header);
        assert_eq!(edits.to_string(), format!("{GREY_HEADER}; BODY 2 bytes"));
        edits.clear();
        assert_eq!(gray(At::Header, &piece[..13], false, &mut edits), At::Pixels(6));
        assert_eq!(edits.to_string(), format!("{GREY_HEADER}; BODY 0 bytes; KEEP 2"));
        edits.clear();
        assert_eq!(gray(At::Pixels(6), &piece[11..15], false, &mut edits), At::Pixels(3));
        assert_eq!(edits.to_string(), "BODY 1 bytes; KEEP 1");
        edits.clear();
        assert_eq!(gray(At::Pixels(3), &piece[14..], true, &mut edits), At::Header);
        assert_eq!(edits.to_string(), "BODY 1 bytes");
        edits.clear();
        assert_eq!(gray(At::Header, &piece[..5], false, &mut edits), At::Header);
        assert_eq!(edits.to_string(), "BODY 0 bytes; KEEP 5");
    }

    #[test]
    fn what_is_no_picture_passes() {
        let mut edits = Edits::new();
        assert_eq!(gray(At::Header, b"GIF89a", false, &mut edits), At::Elsewhere);
        assert_eq!(gray(At::Elsewhere, b"P6 1 1 255 ", false, &mut edits), At::Elsewhere);
        assert_eq!(gray(At::Header, b"P6 1 1", true, &mut edits), At::Elsewhere);
        assert!(edits.is_empty());
        // Nor what follows a picture without being one.
        let piece = b"P6 1 1 255\nabcrest";
        assert_eq!(gray(At::Header, piece, true, &mut edits), At::Elsewhere);
        let expected = format!("{GREY_HEADER}; BODY 1 bytes; PIECE 4 bytes from 14 on");
        assert_eq!(edits.to_string(), expected);
    }
}
