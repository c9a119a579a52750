//! What came of the requests.

/// Problems that are kept in words.
const MAX_PROBLEMS: usize = 8;

/// Counts of requests, by how they ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// Requests that have ended.
    pub ended: u64,
    /// Answered right.
    pub right: u64,
    /// Answered wrong.
    pub wrong: u64,
    /// Of the right ones, those whose KV D computed itself.
    pub recomputed: u64,
    /// Ended because an operator or the client asked for it.
    pub aborted: u64,
    /// Attempts that another one followed.
    pub retried: u64,
    /// Without an answer, although nobody asked for that.
    pub failed: u64,
    /// Loads that D finished.
    pub loads: u64,
    /// Bytes of loaded KV compared, and how many differ.
    pub compared: (u64, u64),
    /// What went wrong, the first few.
    pub problems: Vec<String>,
}

impl Count {
    pub fn problem(&mut self, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(what);
        }
    }
}
