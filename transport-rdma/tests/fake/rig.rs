//! What the tests share: two data planes over the fake adapter.

use kvbaton_actors::transport::{DataPlane, WriteOutcome};
use kvbaton_core::ids::Grant;
use kvbaton_data_conformance::{Node, copy};
use kvbaton_fake_verbs::{Fabric, NewDevice};
use kvbaton_transport_rdma::verbs::Verbs;
use kvbaton_transport_rdma::{DeviceChoice, NoGpu, RdmaConfig, RdmaDataPlane};
use std::sync::Arc;
use std::time::Duration;

/// The fake adapter's functions.
pub fn verbs() -> Verbs {
    // SAFETY: the fake has rdma-core's functions, with their types.
    unsafe { Verbs::from_symbols(&kvbaton_fake_verbs::symbol) }.expect("has them all")
}

/// Every device of a fabric; patient, because tests share processors.
pub fn config(fabric: &Fabric) -> RdmaConfig {
    RdmaConfig {
        devices: fabric.names().into_iter().map(DeviceChoice::named).collect(),
        dead_after: Duration::from_secs(20),
        connect_timeout: Duration::from_secs(20),
        ..RdmaConfig::default()
    }
}

pub fn open(config: RdmaConfig) -> Arc<RdmaDataPlane> {
    RdmaDataPlane::open_with(&verbs(), Box::new(NoGpu), config).expect("opens")
}

/// A node and its devices. Devices outlive the node.
pub struct Side {
    pub node: Node,
    pub fabric: Fabric,
}

impl Side {
    pub fn new(len: usize, fill: u8) -> Self {
        Self::with(vec![NewDevice::default()], len, fill, |_| {})
    }

    pub fn with(
        devices: Vec<NewDevice>,
        len: usize,
        fill: u8,
        change: impl FnOnce(&mut RdmaConfig),
    ) -> Self {
        let fabric = Fabric::with(devices);
        let mut config = config(&fabric);
        change(&mut config);
        Self { node: Node::of(open(config), len, fill), fabric }
    }
}

/// P with ones, D with zeroes, D's memory granted; blocks of 1 KiB.
pub struct Pair {
    pub p: Side,
    pub d: Side,
    pub grant: Grant,
    pub blocks: u64,
}

pub const BLOCK: u64 = 1024;

impl Pair {
    pub fn new(blocks: u64) -> Self {
        Self::with(blocks, |_| {})
    }

    /// P is configured like this.
    pub fn with(blocks: u64, change: impl FnOnce(&mut RdmaConfig)) -> Self {
        let len = (blocks * BLOCK) as usize;
        let p = Side::with(vec![NewDevice::default()], len, 1, change);
        Self::of(p, Side::new(len, 0), blocks)
    }

    pub fn of(p: Side, d: Side, blocks: u64) -> Self {
        let grant = d.node.grant(1, 0, blocks * BLOCK);
        Self { p, d, grant, blocks }
    }

    /// Every block, in the reverse order, so that none merges with the next.
    pub fn write(&self) -> kvbaton_actors::transport::Write {
        let (p, d) = (&self.p.node, &self.d.node);
        let block = |at: u64| copy(p.at(at * BLOCK), d.at(at * BLOCK), BLOCK);
        p.write_to(d, self.grant, (0..self.blocks).rev().map(block).collect())
    }

    pub fn run(&self) -> WriteOutcome {
        self.p.node.run(self.write())
    }

    /// One small write, to have queue pairs.
    pub fn connect(&self) {
        let (p, d) = (&self.p.node, &self.d.node);
        let write = p.write_to(d, self.grant, vec![copy(p.at(0), d.at(0), 8)]);
        assert_eq!(p.run(write), WriteOutcome::Written);
    }

    pub fn landed_whole(&self) -> bool {
        self.d.node.read() == self.p.node.read()
    }

    /// Nothing overflowed, and nothing is left once both are gone.
    pub fn finish(self) {
        let Self { p, d, .. } = self;
        for side in [p, d] {
            let Side { node, fabric } = side;
            drop(node);
            for device in 0..fabric.names().len() {
                let device = fabric.device(device);
                assert_eq!(device.overruns(), 0, "a completion queue overflowed");
                assert_eq!(device.live(), Default::default(), "something was not destroyed");
            }
        }
    }

    pub fn plane(&self) -> &Arc<dyn DataPlane> {
        &self.p.node.plane
    }
}
