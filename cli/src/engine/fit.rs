//! Whether two engines can exchange KV at all, asked of core before anything is started.

use super::model::Model;
use anyhow::{Context, Result};
use kvbaton_core::ids::Address;
use kvbaton_core::layout::Layout;
use kvbaton_core::plan::{LocalLayout, PeerTopology, PreparedLayout};
use kvbaton_core::topology::{Topology, pull_targets};
use kvbaton_model_engine::{RankLayout, RankPlace, Shape};

/// Tries every pair of ranks. `prefill` and `decode` are TP and PP sizes.
///
/// # Errors
/// Core's or the model's reason, with the ranks that it concerns.
pub fn check_pair(model: Model, prefill: (u32, u32), decode: (u32, u32)) -> Result<()> {
    let shape = model.shape();
    for d_place in RankPlace::all(decode.0, decode.1) {
        let d = register(&shape, d_place)?;
        let columns = Layout { regions: d.regions, ..Layout::default() }.to_columns();
        let RankPlace { tp_rank, tp_size, pp_size, .. } = d_place;
        let peer = PeerTopology { tp_rank, tp_size, pp_size };
        let targets = pull_targets(Topology::from(d_place), prefill.0, prefill.1)?;
        for (tp_rank, pp_rank) in targets {
            let place = RankPlace { tp_rank, tp_size: prefill.0, pp_rank, pp_size: prefill.1 };
            let p = register(&shape, place)?;
            PreparedLayout::prepare(&p, peer, &columns)?;
        }
    }
    Ok(())
}

fn register(shape: &Shape, place: RankPlace) -> Result<LocalLayout> {
    const BLOCKS: u32 = 2;
    let layout = RankLayout::new(shape, place, BLOCKS, Address(1 << 20))?;
    let name = || format!("tp rank {}, pp rank {}", place.tp_rank, place.pp_rank);
    layout.register(shape, place, BLOCKS).with_context(name)
}

#[cfg(test)]
mod tests {
    use super::super::model::ModelKind;
    use super::*;

    fn refusal(kind: ModelKind, prefill: (u32, u32), decode: (u32, u32)) -> String {
        check_pair(Model::new(kind, None).unwrap(), prefill, decode).unwrap_err().to_string()
    }

    #[test]
    fn what_core_takes_is_taken() {
        for (kind, prefill, decode) in [
            (ModelKind::Dense, (4, 1), (2, 1)),
            (ModelKind::Dense, (1, 2), (2, 1)),
            (ModelKind::Mla, (2, 1), (1, 1)),
            (ModelKind::Hybrid, (2, 1), (2, 1)),
            (ModelKind::Deepseek146, (2, 1), (2, 2)),
        ] {
            check_pair(Model::new(kind, None).unwrap(), prefill, decode).unwrap();
        }
    }

    #[test]
    fn a04_what_core_refuses_is_refused_in_its_words() {
        assert!(refusal(ModelKind::Hybrid, (2, 1), (1, 1)).contains("recurrent state"));
        assert!(refusal(ModelKind::Dense, (3, 1), (2, 1)).contains("3"));
        assert!(refusal(ModelKind::Dense, (1, 9), (1, 1)).contains("pipeline stages"));
    }
}
