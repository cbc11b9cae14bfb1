//! From token bytes to whole UTF-8 pieces, holding back what may become a stop text.

/// Assembles an answer's text.
#[derive(Debug, Default)]
pub(super) struct TextStream {
    /// Bytes that do not form a whole character yet.
    bytes: Vec<u8>,
    /// Whole characters that could be the beginning of a stop text.
    held: String,
    stop: Vec<String>,
    stopped: bool,
}

impl TextStream {
    pub(super) fn new(stop: &[String]) -> Self {
        Self { stop: stop.iter().filter(|s| !s.is_empty()).cloned().collect(), ..Self::default() }
    }

    /// Takes a token's bytes and returns the text that is certain now (often all of it, sometimes none).
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        if self.stopped {
            return String::new();
        }
        self.bytes.extend_from_slice(bytes);
        let text = self.take_whole();
        self.held.push_str(&text);
        if let Some(at) = self.stop.iter().filter_map(|s| self.held.find(s.as_str())).min() {
            self.held.truncate(at);
            self.stopped = true;
            return std::mem::take(&mut self.held);
        }
        let keep = self.stop.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        let ready = self.held.len() - keep;
        self.held.drain(..ready).collect()
    }

    /// Whether a stop text came up.
    pub(super) fn stopped(&self) -> bool {
        self.stopped
    }

    /// What is left when no more tokens come; bytes that never became a character turn into U+FFFD.
    pub(super) fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let mut text = std::mem::take(&mut self.held);
        text.push_str(&String::from_utf8_lossy(&std::mem::take(&mut self.bytes)));
        text
    }

    /// Removes and returns all whole characters; bytes that can never be part of one turn into U+FFFD.
    fn take_whole(&mut self) -> String {
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.bytes) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.bytes.clear();
                    return text;
                }
                Err(error) => {
                    let valid = error.valid_up_to();
                    text.push_str(&String::from_utf8_lossy(&self.bytes[..valid]));
                    match error.error_len() {
                        // an unfinished character: wait for the rest
                        None => {
                            self.bytes.drain(..valid);
                            return text;
                        }
                        Some(bad) => {
                            text.push(char::REPLACEMENT_CHARACTER);
                            self.bytes.drain(..valid + bad);
                        }
                    }
                }
            }
        }
    }
}

/// Length of the longest end of `text` that is a beginning of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    (1..stop.len().min(text.len() + 1))
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stop: &[&str], pieces: &[&[u8]]) -> (Vec<String>, String, bool) {
        let mut stream = TextStream::new(&stop.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let out = pieces.iter().map(|p| stream.push(p)).collect();
        let rest = stream.finish();
        (out, rest, stream.stopped())
    }

    #[test]
    fn characters_come_whole() {
        let euro = "€".as_bytes();
        let (out, rest, _) = run(&[], &[b"a", &euro[..1], &euro[1..2], &euro[2..], b"b"]);
        assert_eq!(out, ["a", "", "", "€", "b"]);
        assert_eq!(rest, "");
    }

    #[test]
    fn bytes_that_are_no_text_are_marked_and_do_not_block() {
        let (out, rest, _) = run(&[], &[&[0xff, b'x'], &[0xe2, 0x82], b"y", &[0xf0, 0x9f]]);
        assert_eq!(out, ["\u{fffd}x", "", "\u{fffd}y", ""]);
        assert_eq!(rest, "\u{fffd}");
    }

    #[test]
    fn a_stop_text_ends_it_wherever_tokens_cut_it() {
        let (out, rest, stopped) = run(&["###"], &[b"red#", b"#", b"# and more", b"x"]);
        assert_eq!(out.concat(), "red");
        assert_eq!(rest, "");
        assert!(stopped);
    }

    #[test]
    fn a_beginning_that_goes_on_otherwise_is_given_out() {
        let (out, rest, stopped) = run(&["ASSISTANT:"], &[b"an ASS", b"ET", b" ASSIST"]);
        assert_eq!(out, ["an ", "ASSET", " "]);
        assert_eq!(rest, "ASSIST");
        assert!(!stopped);
    }

    #[test]
    fn the_earliest_stop_text_wins() {
        let (out, _, stopped) = run(&["cd", "b"], &[b"abcd"]);
        assert_eq!(out, ["a"]);
        assert!(stopped);
    }
}
