//! "Did you mean …?": the nearest of the names that would have been right.

/// The candidate nearest to what was written, if one is near enough to be a slip.
pub(crate) fn nearest<'a>(
    written: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // No key is this long, and the comparison's cost is the product of both lengths.
    if written.len() > 64 {
        return None;
    }
    let written = written.to_lowercase();
    // A slip is one edit in a short word, one in three letters of a longer one.
    let allowed = (written.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&written, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= allowed && distance < candidate.len())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}
