//! Text for HTML and SVG.

use crate::history::What;

/// Text as it stands between tags and in attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            control if control.is_control() && control != '\n' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The first letters of a text.
pub fn shorten(text: &str, letters: usize) -> String {
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(letters - 1).collect();
    short.push('…');
    short
}

/// A text in lines of at most so many letters.
pub fn wrap(text: &str, letters: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= letters => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// What belongs together when one of it is pointed at: a connection or a write.
pub fn key(what: &What) -> Option<String> {
    match what {
        What::PullSent { connection, .. }
        | What::PullReceived { connection, .. }
        | What::ReplySent { connection, .. }
        | What::ReplyReceived { connection, .. }
        | What::DropSent { connection, .. }
        | What::DropReceived { connection, .. }
        | What::Unreadable { connection }
        | What::ConnectionClosed { connection }
        | What::ConnectionBroken { connection }
        | What::MessageLost { connection } => Some(format!("c{}", connection.0)),
        What::WriteStarted { write, .. }
        | What::WriteEnded { write, .. }
        | What::Landed { write, .. }
        | What::Refused { write, .. } => Some(write.to_string()),
        _ => None,
    }
}
