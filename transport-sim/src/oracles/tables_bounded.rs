//! Tables keep within their bounds, and are empty once all is over.

use super::Oracle;
use super::lives::Lives;
use crate::history::{Event, Tables, What};
use crate::plan::{Bounds, Plan};

/// Looks at tables as nodes report them.
#[derive(Debug)]
pub struct TablesBounded {
    bounds: Bounds,
    healed: bool,
    last: Lives<Option<Tables>>,
}

impl TablesBounded {
    /// For runs of `plan`.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self { bounds: plan.bounds.clone(), healed: false, last: Lives::default() }
    }
}

fn names(tables: &Tables) -> [(&'static str, u64); 6] {
    [
        ("held", tables.held),
        ("pulls", tables.pulls),
        ("writes", tables.writes),
        ("loads", tables.loads),
        ("open pulls", tables.open_pulls),
        ("grants", tables.grants),
    ]
}

impl Oracle for TablesBounded {
    fn name(&self) -> &'static str {
        "tables-bounded"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["L08", "P03", "P05", "Z01"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        match &event.what {
            What::Healed => self.healed = true,
            What::Ended if self.healed => {
                for (node, last) in self.last.iter() {
                    let full = last.as_ref().map(names).into_iter().flatten();
                    if let Some((name, count)) = full.into_iter().find(|(_, count)| *count > 0) {
                        return Err(format!("{node}: {count} {name} are left at the end"));
                    }
                }
            }
            _ => {}
        }
        let Some((node, last)) = self.last.of(event) else { return Ok(()) };
        let What::Tables(tables) = &event.what else { return Ok(()) };
        *last = self.healed.then_some(*tables);
        let bounds = [
            ("layouts", tables.layouts, tables.layouts_bound),
            ("bound of layouts", tables.layouts_bound, self.bounds.peer_layouts as u64),
            ("transfers", tables.transfers, self.bounds.max_transfers as u64),
            ("held", tables.held, self.bounds.max_transfers as u64),
            ("writes", tables.writes, self.bounds.senders.max(1) as u64),
        ];
        match bounds.into_iter().find(|(_, count, bound)| count > bound) {
            Some((name, count, bound)) => {
                Err(format!("{node}: {name}: {count} of at most {bound}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{Story, caught, legal, plan};

    fn oracle() -> TablesBounded {
        TablesBounded::new(&plan())
    }

    fn tables(change: impl Fn(&mut Tables)) -> What {
        let mut tables = Tables { layouts: 16, layouts_bound: 16, ..Tables::default() };
        change(&mut tables);
        What::Tables(tables)
    }

    #[test]
    fn l08_tables_keep_their_bounds() {
        legal(oracle(), Story::new().p(tables(|it| (it.transfers, it.writes) = (256, 4))));
        type Change = fn(&mut Tables);
        let too_many: [(Change, &str); 5] = [
            (|it| it.layouts = 17, "layouts: 17 of at most 16"),
            (|it| it.layouts_bound = 17, "bound of layouts"),
            (|it| it.transfers = 257, "transfers: 257"),
            (|it| it.held = 257, "held: 257"),
            (|it| it.writes = 5, "writes: 5 of at most 4"),
        ];
        for (change, words) in too_many {
            caught(oracle(), Story::new().p(tables(change)), words);
        }
    }

    #[test]
    fn p05_nothing_is_left_at_the_end() {
        let left: [fn(&mut Tables); 6] = [
            |it| it.held = 1,
            |it| it.pulls = 1,
            |it| it.writes = 1,
            |it| it.loads = 1,
            |it| it.open_pulls = 1,
            |it| it.grants = 1,
        ];
        for change in left {
            let story = || Story::new().p(tables(change)).world(What::Healed).p(tables(change));
            caught(oracle(), story().world(What::Ended), "are left at the end");
            legal(oracle(), story().p(tables(|_| ())).world(What::Ended));
            legal(oracle(), story().p(What::Killed).world(What::Ended));
            legal(oracle(), Story::new().p(tables(change)).world(What::Ended));
        }
    }
}
