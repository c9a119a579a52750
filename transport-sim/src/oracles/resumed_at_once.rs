//! A resume ends what runs at once, and the engine computes then.

use super::Oracle;
use super::due::MS;
use crate::history::{Event, Lane, What};
use kvbaton_core::lifecycle::engine::{EngineOrder, Operation, RankOrder};
use std::collections::{BTreeMap, BTreeSet};

/// What "at once" may take: orders that last while something happens, messages between
/// actors.
const AT_ONCE: u64 = 30 * MS;

#[derive(Debug, Default)]
struct Engine {
    /// Resumes that have no answer, since when, and whether something must end first.
    resumes: BTreeMap<u64, (u64, bool)>,
    /// Orders that change memory and are not done.
    memory: BTreeSet<u32>,
    /// Whether the last such order lets requests run.
    runs: bool,
}

/// Follows resumes.
#[derive(Debug, Default)]
pub struct ResumedAtOnce {
    engines: BTreeMap<u16, Engine>,
}

impl Oracle for ResumedAtOnce {
    fn name(&self) -> &'static str {
        "resumed-at-once"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["R05"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        let engine = match event.lane {
            Lane::Engine(engine) => engine,
            Lane::Node(node) => node.engine,
            Lane::World | Lane::Clients => return Ok(()),
        };
        let it = self.engines.entry(engine).or_default();
        match &event.what {
            What::Started { .. } | What::Killed => {
                *it = Engine { runs: true, ..Engine::default() };
            }
            // Its time does not count; whoever waits for it is not judged.
            What::Stopped | What::Continued => it.excuse(),
            What::OperationAsked { id, what: Operation::Resume } => {
                let excused = !it.memory.is_empty();
                it.resumes.insert(*id, (event.at, excused));
            }
            What::EngineTold { number, order } => match order {
                EngineOrder::Run => it.runs = true,
                EngineOrder::Freeze | EngineOrder::Finish => it.runs = false,
                EngineOrder::Map(_) | EngineOrder::Unmap { .. } | EngineOrder::LoadWeights(_) => {
                    it.begin(*number);
                }
                _ => {}
            },
            What::RankTold { number, order } => {
                if matches!(
                    order,
                    RankOrder::Commit | RankOrder::Restore | RankOrder::SetWeights(_)
                ) {
                    it.begin(*number);
                }
            }
            What::OrderDone { number, .. } => drop(it.memory.remove(number)),
            What::OperationEnded { id, end } => {
                let Some((since, excused)) = it.resumes.remove(id) else { return Ok(()) };
                if !excused && event.at > since + AT_ONCE {
                    let ms = (event.at - since) / MS;
                    return Err(format!(
                        "e{engine}: a resume took {ms} ms, nothing was in the way"
                    ));
                }
                if end.is_ok() && !it.runs {
                    return Err(format!("e{engine} was resumed, and was not told to run"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Engine {
    fn begin(&mut self, number: u32) {
        self.memory.insert(number);
        self.excuse();
    }

    fn excuse(&mut self) {
        self.resumes.values_mut().for_each(|it| it.1 = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, asked, caught, ended, legal};

    fn told(number: u32, order: EngineOrder) -> What {
        What::EngineTold { number, order }
    }

    fn frozen() -> Story {
        Story::new().engine(0, told(0, EngineOrder::Freeze))
    }

    #[test]
    fn r05_a_resume_is_answered_at_once() {
        let resume = |story: Story| story.engine(0, asked(1, Operation::Resume));
        let run = |story: Story| story.engine(0, told(2, EngineOrder::Run));
        legal(ResumedAtOnce::default(), run(resume(frozen()).at(30)).engine(0, ended(1)));
        let late = run(resume(frozen()).at(31)).engine(0, ended(1));
        caught(ResumedAtOnce::default(), late, "took 31 ms");
        let unmap = EngineOrder::LoadWeights(kvbaton_core::ids::WeightVersion(1));
        let loading = resume(frozen().engine(0, told(1, unmap))).at(300);
        let loaded = loading.engine(0, What::OrderDone { number: 1, failed: None });
        legal(ResumedAtOnce::default(), run(loaded).engine(0, ended(1)));
    }

    #[test]
    fn r05_a_resumed_engine_computes() {
        let story = frozen().engine(0, asked(1, Operation::Resume)).engine(0, ended(1));
        caught(ResumedAtOnce::default(), story, "was not told to run");
    }
}
