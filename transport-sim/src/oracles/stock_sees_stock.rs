//! Stock peers get stock messages only.

use super::Oracle;
use super::lives::Lives;
use crate::history::{ConnectionId, Event, What};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Remembers who is a stock peer.
#[derive(Debug, Default)]
pub struct StockSeesStock {
    /// Whether a stock peer listens there.
    stock: BTreeMap<Arc<str>, bool>,
    /// Connections of stock D's.
    pulls: Lives<BTreeSet<ConnectionId>>,
}

impl Oracle for StockSeesStock {
    fn name(&self) -> &'static str {
        "stock-sees-stock"
    }

    fn rules(&self) -> &'static [&'static str] {
        &["P09", "G03", "L06"]
    }

    fn observe(&mut self, event: &Event) -> Result<(), String> {
        if let What::Started { stock, address: Some(address), .. } = &event.what {
            self.stock.insert(address.clone(), *stock);
        }
        let Some((node, pulls)) = self.pulls.of(event) else { return Ok(()) };
        match &event.what {
            What::PullSent { to, pull, .. } if self.stock.get(to) == Some(&true) => {
                let grants = pull.requests.iter().any(|it| it.3.is_some());
                let says = pull.generation.is_some() || pull.incarnation.is_some();
                if pull.ours || grants || says || pull.timeout_ms > 0 {
                    return Err(format!("{node}: a pull of our own form goes to stock {to}"));
                }
            }
            What::DropSent { to, .. } if self.stock.get(to) == Some(&true) => {
                return Err(format!("{node}: a drop goes to stock {to}"));
            }
            What::PullReceived { connection, pull } if !pull.ours => {
                pulls.insert(*connection);
            }
            What::ReplySent { connection, reply }
                if pulls.contains(connection) && reply.incarnation.is_some() =>
            {
                return Err(format!("{node}: an answer of our own form to c{}", connection.0));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::made_up::{
        ADDRESS, Story, caught, legal, pull, pull_received, pull_sent, reply, reply_sent, started,
        stock_pull,
    };
    use kvbaton_core::ids::Incarnation;
    use kvbaton_core::wire::Status;

    fn stock_p() -> Story {
        Story::empty().p(started(true, "p")).d(started(false, "d"))
    }

    fn drop_sent() -> What {
        let connection = ConnectionId(2);
        What::DropSent { connection, to: ADDRESS.into(), transfers: Vec::new() }
    }

    #[test]
    fn a_stock_p_gets_stock_pulls_and_no_drops() {
        legal(StockSeesStock::default(), stock_p().d(pull_sent(1, stock_pull(true, &["a"]))));
        let ours = || pull_sent(1, pull(3, true, &[("a", 7)]));
        legal(StockSeesStock::default(), Story::new().d(ours()).d(drop_sent()));
        caught(StockSeesStock::default(), stock_p().d(ours()), "goes to stock tcp://p:1");
        caught(StockSeesStock::default(), stock_p().d(drop_sent()), "a drop goes to stock");
        let mut granted = pull(3, true, &[("a", 7)]);
        (granted.ours, granted.generation, granted.timeout_ms) = (false, None, 0);
        caught(StockSeesStock::default(), stock_p().d(pull_sent(1, granted)), "goes to stock");
    }

    #[test]
    fn a_stock_d_gets_stock_answers() {
        let pulled = |pull| Story::new().p(pull_received(1, pull));
        let mut ours = reply(Status::Finish, &["a"], &[], 0);
        legal(
            StockSeesStock::default(),
            pulled(stock_pull(true, &["a"])).p(reply_sent(1, ours.clone())),
        );
        ours.incarnation = Some(Incarnation(5));
        let ours = reply_sent(1, ours);
        legal(StockSeesStock::default(), pulled(pull(3, true, &[("a", 7)])).p(ours.clone()));
        caught(StockSeesStock::default(), pulled(stock_pull(true, &["a"])).p(ours), "own form");
    }
}
