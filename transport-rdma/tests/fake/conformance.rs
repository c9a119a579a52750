//! The contract of a data plane, over the fake adapter.

use crate::rig::{config, open};
use kvbaton_actors::transport::DataPlane;
use kvbaton_data_conformance::{Options, Planes, conformance};
use kvbaton_fake_verbs::Fabric;
use std::sync::Arc;

/// Every plane has a device of its own.
struct Fake;

impl Planes for Fake {
    fn open(&self, options: Options) -> Arc<dyn DataPlane> {
        let fabric = Fabric::new(1);
        let mut config = config(&fabric);
        config.port = options.port;
        config.cluster_key = options.key;
        if options.deny_all {
            config.check_address = Arc::new(|_| false);
        }
        open(config)
    }
}

conformance!(&Fake);
