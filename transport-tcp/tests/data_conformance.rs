//! The contract of a data plane, over TCP.

use kvbaton_actors::transport::DataPlane;
use kvbaton_data_conformance::{Options, Planes, conformance};
use kvbaton_transport_tcp::data::{DataConfig, TcpDataPlane};
use std::sync::Arc;

struct Tcp;

impl Planes for Tcp {
    fn open(&self, options: Options) -> Arc<dyn DataPlane> {
        let mut config =
            DataConfig { port: options.port, cluster_key: options.key, ..DataConfig::default() };
        if options.deny_all {
            config.check_address = Arc::new(|_| false);
        }
        TcpDataPlane::open(config).expect("opens")
    }
}

conformance!(&Tcp);
