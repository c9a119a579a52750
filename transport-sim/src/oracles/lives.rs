//! State per life of a node of ours. A killed life's state is dropped: whatever it owed is
//! void.

use crate::history::{Event, Lane, NodeId, What};
use std::collections::BTreeMap;

/// State of each life of ours that runs.
#[derive(Debug)]
pub(super) struct Lives<T>(BTreeMap<NodeId, T>);

impl<T> Default for Lives<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> Lives<T> {
    /// The life of ours whose event it is. `None` for other lanes, stock peers and the dead.
    pub fn of(&mut self, event: &Event) -> Option<(NodeId, &mut T)> {
        let Lane::Node(node) = event.lane else { return None };
        match event.what {
            What::Started { stock: false, .. } => {
                self.0.insert(node, T::default());
            }
            What::Killed => {
                self.0.remove(&node);
            }
            _ => {}
        }
        self.0.get_mut(&node).map(|it| (node, it))
    }

    /// One life.
    pub fn get(&self, node: NodeId) -> Option<&T> {
        self.0.get(&node)
    }

    /// All lives of one engine.
    pub fn of_engine(&self, engine: u16) -> impl Iterator<Item = (NodeId, &T)> {
        self.iter().filter(move |(node, _)| node.engine == engine)
    }

    /// All lives.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &T)> {
        self.0.iter().map(|(node, it)| (*node, it))
    }
}
