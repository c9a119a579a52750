//! Loaded KV is what the model says.

use super::Oracle;
use super::unprotected::Unprotected;
use crate::history::{Event, Lane, What};

/// Objects to bytes that differ.
#[derive(Debug, Default)]
pub struct Compared {
    unprotected: Unprotected,
}

impl Oracle for Compared {
    fn name(&self) -> &'static str {
        "compared"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["A07", "P08", "G02"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        self.unprotected.observe(event);
        let Lane::Engine(engine) = event.lane else { return Ok(()) };
        match &event.what {
            _ if self.unprotected.is_suspect(engine) => Ok(()),
            What::Compared { request, bytes, different: different @ 1.. } => Err(format!(
                "{}: {different} of the {bytes} bytes that {request} loaded are not the model's",
                event.lane
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        Story, caught, legal, load_failed, started, write, write_ended, write_failed,
    };

    #[test]
    fn a07_one_wrong_byte_is_enough() {
        let compared = |different| {
            let what = What::Compared { request: "r".into(), bytes: 64, different };
            Story::new().engine(1, what)
        };
        legal(Compared::default(), compared(0));
        caught(Compared::default(), compared(1), "e1: 1 of the 64 bytes");
    }

    #[test]
    fn a_stock_d_that_may_be_written_late_proves_nothing() {
        let differs = || What::Compared { request: "r".into(), bytes: 64, different: 1 };
        let begin = |stock| Story::empty().d(started(stock, "d"));
        let unsettled = |story: Story| {
            let story = story.p(write(1, 7, &[(0, 64)])).p(write_ended(1, write_failed(false)));
            story.engine(1, differs())
        };
        legal(Compared::default(), unsettled(begin(true)));
        caught(Compared::default(), unsettled(begin(false)), "e1: 1 of the 64 bytes");
        let failed = |story: Story| story.d(load_failed("a", "TimedOut", "request a: late"));
        legal(Compared::default(), failed(begin(true)).engine(1, differs()));
        caught(Compared::default(), failed(begin(false)).engine(1, differs()), "e1: 1 of");
    }
}
