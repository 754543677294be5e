//! Whole reads and streams: right bytes or an error, never a mixture.

use std::io::Write;

use futures_util::StreamExt;
use http_body::Body;

use super::super::{PIECE_BYTES, PIECES_IN_FLIGHT_MAX};
use super::*;

/// Bytes in which every position can be told from its neighbours and from other pieces.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn whole_reads_give_every_byte() {
    let site = Site::new();
    let root = site.root();
    for len in [0, 1, 4096, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
        let content = pattern(len);
        site.write("f.bin", &content);
        let file = open(&root, "f.bin");
        assert_eq!(file.len, len as u64);
        assert!(body(&file) == content, "read {len}");
        assert!(file.read_small().unwrap() == content, "read_small {len}");
        file.drop_page_cache();
        assert!(body(&file) == content, "read again {len}");
    }
}

#[test]
fn a_destination_that_refuses_ends_the_read() {
    let site = Site::new();
    site.write("f.bin", pattern(3 * PIECE_BYTES));
    let mut pieces = 0;
    let error = open(&site.root(), "f.bin").read(&mut |_| {
        pieces += 1;
        Err(std::io::Error::other("arena full"))
    });
    let error = error.unwrap_err();
    assert!(matches!(error, FilesError::Destination { .. }) && pieces == 1, "{error} {pieces}");
    assert!(error.to_string().contains("arena full"), "{error}");
}

#[test]
fn a_file_that_changes_under_a_read_is_an_error() {
    type Edit = fn(&Path);
    let edits: [(&str, Edit, bool); 5] = [
        ("truncated", |path| open_write(path).set_len(10).unwrap(), false),
        ("emptied", |path| drop(fs::File::create(path).unwrap()), false),
        ("edited in place", |path| open_write(path).write_all(b"edited").unwrap(), false),
        (
            "replaced by rename",
            |path| {
                let next = path.with_extension("next");
                fs::write(&next, "next").unwrap();
                fs::rename(next, path).unwrap();
            },
            true,
        ),
        ("unlinked", |path| fs::remove_file(path).unwrap(), true),
    ];
    for (name, edit, expect) in edits {
        let site = Site::new();
        let content = pattern(2 * PIECE_BYTES);
        let path = site.write("f.bin", &content);
        // Away from the present tick of the kernel's clock, so that an edit shows.
        set_modified(&path, 1_700_000_000, 0);
        let file = open(&site.root(), "f.bin");
        let mut got = Vec::new();
        let result = file.read(&mut |piece| {
            if got.is_empty() {
                edit(&path);
            }
            got.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!(result.is_ok(), expect, "{name}: {result:?}");
        match result {
            Ok(()) => assert!(got == content, "{name}"),
            Err(error) => assert!(matches!(error, FilesError::Changed { .. }), "{name}: {error}"),
        }
    }
}

fn open_write(path: &Path) -> fs::File {
    fs::File::options().write(true).open(path).unwrap()
}

#[tokio::test]
async fn streams_give_the_range_asked_for() {
    let site = Site::new();
    let len = 5 * PIECE_BYTES + 100;
    let content = pattern(len);
    site.write("f.bin", &content);
    let file = open(&site.root(), "f.bin");
    for range in [
        0..len,
        0..0,
        len..len,
        0..1,
        len - 1..len,
        10..PIECE_BYTES + 10,
        PIECE_BYTES..2 * PIECE_BYTES,
        3..4 * PIECE_BYTES - 1,
    ] {
        let mut stream = file.stream(range.start as u64..range.end as u64);
        assert_eq!(stream.size_hint().exact(), Some(range.len() as u64));
        let mut got = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = piece.unwrap();
            assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES);
            got.extend_from_slice(&piece);
            assert_eq!(stream.remaining(), (range.len() - got.len()) as u64);
        }
        assert!(stream.is_end_stream());
        assert!(got == content[range.clone()], "{range:?}");
    }
}

#[test]
#[should_panic(expected = "range beyond the file")]
fn a_range_beyond_the_file_is_a_bug_of_the_caller() {
    let site = Site::new();
    site.write("f.bin", "12345");
    drop(open(&site.root(), "f.bin").stream(0..6));
}

/// Takes one piece, waits until what may be read ahead must have been, edits, and takes the rest.
async fn stream_across(edit: fn(&Path)) -> (usize, Option<std::io::Error>) {
    let site = Site::new();
    let pieces = PIECES_IN_FLIGHT_MAX + 6;
    let path = site.write("f.bin", pattern(pieces * PIECE_BYTES));
    set_modified(&path, 1_700_000_000, 0);
    let file = open(&site.root(), "f.bin");
    let mut stream = file.stream(0..file.len);
    let mut got = stream.next().await.unwrap().unwrap().len();
    edit(&path);
    let mut failure = None;
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => got += piece.len(),
            Err(error) => failure = Some(error),
        }
    }
    assert!(stream.next().await.is_none(), "ends after an error");
    (got / PIECE_BYTES, failure)
}

#[tokio::test]
async fn a_file_that_shrinks_tears_the_stream() {
    let (pieces, failure) = stream_across(|path| open_write(path).set_len(1000).unwrap()).await;
    assert_eq!(failure.unwrap().kind(), std::io::ErrorKind::UnexpectedEof);
    assert!(pieces <= 1 + PIECES_IN_FLIGHT_MAX, "{pieces} pieces: read ahead without being asked");
}

#[tokio::test]
async fn a_file_that_is_edited_tears_the_stream() {
    let (pieces, failure) =
        stream_across(|path| open_write(path).write_all(b"edited").unwrap()).await;
    assert!(failure.unwrap().to_string().contains("edited"));
    assert!(pieces <= 1 + PIECES_IN_FLIGHT_MAX, "{pieces}");
}

#[tokio::test]
async fn a_log_that_grows_or_is_rotated_streams_on() {
    let append = |path: &Path| {
        let mut log = fs::File::options().append(true).open(path).unwrap();
        log.write_all(b"another line\n").unwrap();
    };
    let (pieces, failure) = stream_across(append).await;
    assert_eq!((pieces, failure.is_none()), (PIECES_IN_FLIGHT_MAX + 6, true), "{failure:?}");
    let (pieces, failure) = stream_across(|path| fs::remove_file(path).unwrap()).await;
    assert_eq!((pieces, failure.is_none()), (PIECES_IN_FLIGHT_MAX + 6, true), "{failure:?}");
}
