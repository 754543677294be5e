//! From a record to what people read: a Markdown section and figures.

mod adapted;
mod figure;
mod groups;
mod plugins;
mod svg;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Result};
use crate::result::Record;

pub use figure::figures;
pub use table::markdown;

/// File name of the table within an experiment's folder.
pub const TABLE_FILE: &str = "table.md";

/// Writes table and figures of `record` into `folder`; returns the figures' paths.
///
/// # Errors
/// When a file cannot be written.
pub fn write(record: &Record, folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).doing(|| format!("creating {}", folder.display()))?;
    let table = folder.join(TABLE_FILE);
    fs::write(&table, markdown(record)).doing(|| format!("writing {}", table.display()))?;
    write_figures(record, folder)
}

/// Writes only the figures of `record` into `folder`; returns their paths.
///
/// # Errors
/// When a file cannot be written.
pub fn write_figures(record: &Record, folder: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder).doing(|| format!("creating {}", folder.display()))?;
    let mut paths = Vec::new();
    for (name, text) in figures(record) {
        let path = folder.join(name);
        fs::write(&path, text).doing(|| format!("writing {}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// How a series is called: the contender alone where there is only one kind of document.
fn label(record: &Record, contender: &str, case: &str) -> String {
    let one_case = record.series().iter().all(|(_, other)| other == case);
    if one_case { contender.to_owned() } else { format!("{contender} {case}") }
}

/// A size as people say it.
fn size_label(bytes: usize) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MB", bytes >> 20),
        1_048_576.. => format!("{:.1} MB", bytes as f64 / 1_048_576.0),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KB", bytes >> 10),
        _ => format!("{:.1} KB", bytes as f64 / 1_024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::tests::{record, sample};

    #[test]
    fn sizes_are_readable() {
        for (bytes, expect) in [
            (500, "500 B"),
            (1_024, "1 KB"),
            (5_120, "5 KB"),
            (1_500, "1.5 KB"),
            (204_800, "200 KB"),
            (1 << 20, "1 MB"),
            (3_458_320, "3.3 MB"),
        ] {
            assert_eq!(size_label(bytes), expect);
        }
    }

    #[test]
    fn a_record_survives_json_and_gives_the_same_report() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = record("s2");
        for round in 0..3 {
            first.samples.push(sample("weir", 1_024, round, 50));
            first.samples.push(sample("nginx", 1_024, round, 100));
        }
        first.write(folder.path()).unwrap();
        let second = Record::read(folder.path()).unwrap();
        assert_eq!(markdown(&first), markdown(&second));
        assert_eq!(figures(&first), figures(&second));
        let written = write(&second, folder.path()).unwrap();
        assert!(!written.is_empty() && written.iter().all(|path| path.is_file()));
    }
}
