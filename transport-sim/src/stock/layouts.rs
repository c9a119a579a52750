//! Layouts of D ranks as a stock P keeps them.

use crate::plan::Kind;
use kvbaton_core::ids::{LayoutId, SessionAddress};
use kvbaton_core::plan::{LocalLayout, PeerTopology, PreparedLayout};
use kvbaton_core::wire::Pull;
use std::rc::Rc;

/// What a pull's layout comes to.
#[derive(Debug)]
pub(super) enum Found {
    /// It can be planned with; the id to echo.
    Ready(Rc<PreparedLayout>, LayoutId),
    /// It was left out, and is not known.
    Miss,
    /// The two sides do not fit.
    Refused(String),
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    session: SessionAddress,
    peer: PeerTopology,
    id: LayoutId,
}

/// Least recently used first.
#[derive(Debug)]
pub(super) struct Layouts {
    kind: Kind,
    capacity: usize,
    kept: Vec<(Key, Rc<PreparedLayout>)>,
}

impl Layouts {
    /// Keeps up to so many layouts.
    pub const fn new(kind: Kind, capacity: usize) -> Self {
        Self { kind, capacity, kept: Vec::new() }
    }

    /// Layouts kept.
    pub const fn len(&self) -> usize {
        self.kept.len()
    }

    /// The layout of a pull. Only 0.33 knows ids: for 0.32 a pull without its layout is one
    /// with an empty layout.
    pub fn find(&mut self, local: &LocalLayout, pull: &Pull) -> Found {
        let peer =
            PeerTopology { tp_rank: pull.tp_rank, tp_size: pull.tp_size, pp_size: pull.pp_size };
        let named = self.kind == Kind::Stock33 && !pull.layout_id.is_none();
        let key = Key { session: pull.session.clone(), peer, id: pull.layout_id };
        if named && pull.layout.is_none() {
            let Some(at) = self.kept.iter().position(|(it, _)| *it == key) else {
                return Found::Miss;
            };
            let kept = self.kept.remove(at);
            let layout = kept.1.clone();
            self.kept.push(kept);
            return Found::Ready(layout, pull.layout_id);
        }
        let columns = pull.layout.clone().unwrap_or_default();
        match PreparedLayout::prepare(local, peer, &columns) {
            Err(why) => Found::Refused(why.to_string()),
            Ok(layout) if !named => Found::Ready(Rc::new(layout), LayoutId::NONE),
            Ok(layout) => {
                let layout = Rc::new(layout);
                self.kept.retain(|(it, _)| *it != key);
                self.kept.push((key, layout.clone()));
                if self.kept.len() > self.capacity {
                    self.kept.remove(0);
                }
                Found::Ready(layout, pull.layout_id)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stock::node::columns;
    use crate::world::model;
    use kvbaton_core::ids::Address;
    use kvbaton_model_engine::{RankLayout, RankPlace};

    fn local() -> LocalLayout {
        let shape = model::shape(crate::plan::ModelPlan::Dense);
        let place = RankPlace::all(1, 1).next().unwrap();
        let layout = RankLayout::new(&shape, place, 4, Address(0x1000)).unwrap();
        layout.register(&shape, place, 4).unwrap()
    }

    fn pull(port: u16, id: u64, with_layout: bool) -> Pull {
        Pull {
            session: SessionAddress { host: "d".into(), port },
            tp_size: 1,
            tp_rank: 0,
            pp_size: 1,
            layout_id: LayoutId(id),
            layout: with_layout.then(|| columns(&local())),
            requests: Vec::new(),
            extension: None,
        }
    }

    fn find(layouts: &mut Layouts, pull: Pull) -> &'static str {
        match layouts.find(&local(), &pull) {
            Found::Ready(_, LayoutId::NONE) => "ready",
            Found::Ready(..) => "ready, echoed",
            Found::Miss => "miss",
            Found::Refused(_) => "refused",
        }
    }

    #[test]
    fn l05_stock_0_33_misses_what_it_does_not_hold_and_echoes_what_it_does() {
        let mut layouts = Layouts::new(Kind::Stock33, 2);
        assert_eq!(find(&mut layouts, pull(1, 7, false)), "miss");
        assert_eq!(find(&mut layouts, pull(1, 7, true)), "ready, echoed");
        assert_eq!(find(&mut layouts, pull(1, 7, false)), "ready, echoed");
        assert_eq!(find(&mut layouts, pull(1, 9, false)), "miss");
        assert_eq!(find(&mut layouts, pull(2, 7, false)), "miss");
        assert_eq!(find(&mut layouts, pull(1, 0, true)), "ready");
    }

    #[test]
    fn l08_stock_0_33_forgets_the_least_recently_used() {
        let mut layouts = Layouts::new(Kind::Stock33, 2);
        for (port, with_layout) in [(1, true), (2, true), (1, false), (3, true)] {
            assert_eq!(find(&mut layouts, pull(port, 7, with_layout)), "ready, echoed");
        }
        assert_eq!(find(&mut layouts, pull(2, 7, false)), "miss");
        assert_eq!(find(&mut layouts, pull(1, 7, false)), "ready, echoed");
    }

    #[test]
    fn l07_stock_0_32_never_echoes_and_never_misses() {
        let mut layouts = Layouts::new(Kind::Stock32, 2);
        assert_eq!(find(&mut layouts, pull(1, 7, true)), "ready");
        assert_eq!(find(&mut layouts, pull(1, 7, false)), "refused");
        assert_eq!(layouts.len(), 0);
    }
}
