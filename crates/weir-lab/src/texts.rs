//! Texts that compress as texts do: words of a made-up language, short ones more often than long
//! ones, in sentences. The same in every run.

/// Different words.
const WORDS: usize = 2_000;
/// What words are made of.
const SYLLABLES: [&str; 24] = [
    "a", "be", "ci", "do", "en", "fa", "ge", "hi", "in", "ka", "le", "mi", "no", "or", "pe", "qua",
    "re", "si", "ta", "un", "ver", "wo", "tion", "ly",
];
/// Numbers are written so wide, so that texts are alike in size.
const NUMBER_WIDTH: usize = 12;

/// Makes texts that differ in their number alone.
#[derive(Clone, Debug)]
pub struct Writer {
    rest: Vec<u8>,
}

impl Writer {
    /// For texts of `size` bytes.
    #[must_use]
    pub fn new(size: usize) -> Writer {
        let first = first_line(0).len();
        Writer { rest: prose(size.saturating_sub(first)) }
    }

    /// Text `number`.
    #[must_use]
    pub fn text(&self, number: u64) -> Vec<u8> {
        [first_line(number).as_bytes(), &self.rest].concat()
    }
}

fn first_line(number: u64) -> String {
    format!("Text {number:0NUMBER_WIDTH$}.\n")
}

/// `size` bytes of sentences.
#[must_use]
pub fn prose(size: usize) -> Vec<u8> {
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let words: Vec<String> = (0..WORDS).map(|rank| word(rank, &mut random)).collect();
    let mut text = String::with_capacity(size + 64);
    let mut column = 0;
    while text.len() < size {
        let length = 5 + random.below(12);
        for place in 0..length {
            // Words of low rank are far more frequent.
            let share = random.below(1_000) as f64 / 1e3;
            let rank = (WORDS as f64).powf(share) as usize - 1;
            let word = &words[rank.min(WORDS - 1)];
            let capital = if place == 0 { word[..1].to_uppercase() } else { word[..1].to_owned() };
            let end = if place + 1 == length { "." } else { "" };
            let before = match text.is_empty() {
                true => "",
                false if column > 70 => "\n",
                false => " ",
            };
            column = if before == "\n" { word.len() } else { column + before.len() + word.len() };
            text += &format!("{before}{capital}{}{end}", &word[1..]);
        }
    }
    text.truncate(size);
    text.into_bytes()
}

/// Frequent words are short.
fn word(rank: usize, random: &mut Random) -> String {
    let count = match rank {
        0..30 => 1,
        30..300 => 2,
        _ => 2 + random.below(3),
    };
    (0..count).map(|_| SYLLABLES[random.below(SYLLABLES.len())]).collect()
}

/// xorshift64*: the same sequence everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        high as usize % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_size_and_differ() {
        let writer = Writer::new(8_192);
        let (one, other) = (writer.text(1), writer.text(4_711));
        assert_eq!((one.len(), other.len()), (8_192, 8_192));
        assert_ne!(one, other);
        assert_eq!(one, Writer::new(8_192).text(1));
    }

    #[test]
    fn prose_is_ascii_in_lines_of_words_of_which_few_are_frequent() {
        let text = String::from_utf8(prose(50_000)).unwrap();
        assert!(text.is_ascii() && text.lines().all(|line| line.len() < 100), "{text}");
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut counts = std::collections::HashMap::new();
        words.iter().for_each(|word| *counts.entry(word.to_lowercase()).or_insert(0_usize) += 1);
        let most = counts.values().max().copied().unwrap_or_default();
        assert!(counts.len() > 500 && most > words.len() / 50, "{} {most}", counts.len());
    }
}
