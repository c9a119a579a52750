//! The large shape is the one that the wire vectors carry.

use kvbaton_core::ids::Address;
use kvbaton_model_engine::{RankLayout, RankPlace, deepseek146};
use serde_json::Value;

#[test]
fn l01_deepseek146_has_the_regions_of_the_wire_vector() {
    let vectors: Value =
        serde_json::from_str(include_str!("../../core/tests/vectors/wire.json")).unwrap();
    let pulls = vectors["pulls"].as_array().unwrap();
    let pull = pulls.iter().find(|pull| pull["name"] == "146 regions with layout").unwrap();
    let fields = &pull["fields"];
    let numbers = |name: &str| -> Vec<u64> {
        fields[name].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let addresses = numbers("kv_caches_base_addr");
    let blocks = ((addresses[1] - addresses[0]) / numbers("block_lens")[0]) as u32;
    let place = RankPlace { tp_rank: 1, tp_size: 4, pp_rank: 0, pp_size: 1 };
    let layout = RankLayout::new(&deepseek146(), place, blocks, Address(addresses[0])).unwrap();
    let of = |field: &dyn Fn(&kvbaton_model_engine::TensorShape) -> u64| -> Vec<u64> {
        layout.tensors.iter().map(field).collect()
    };
    let names: Vec<_> =
        layout.tensors.iter().map(|tensor| Value::from(&*tensor.layer_name)).collect();
    assert_eq!(&names, fields["registered_layer_names"].as_array().unwrap());
    assert_eq!(of(&|tensor| u64::from(tensor.layer_index)), numbers("registered_layer_indices"));
    assert_eq!(of(&|tensor| tensor.group as u64), numbers("registered_group_indices"));
    assert_eq!(of(&|tensor| tensor.strides[0]), numbers("block_lens"));
    assert_eq!(of(&|tensor| tensor.page_size), numbers("kv_block_lens"));
    assert_eq!(of(&|tensor| layout.address(tensor).0), addresses);
    // As registered, it is the vector's layout, column by column.
    let regions = layout.register(&deepseek146(), place, blocks).unwrap().regions;
    let columns = kvbaton_core::layout::Layout { regions, ..Default::default() }.to_columns();
    assert_eq!(columns.block_lens, numbers("block_lens"));
    assert_eq!(columns.kv_block_lens, numbers("kv_block_lens"));
    assert_eq!(columns.base_addrs, addresses);
    let offsets: Vec<_> = columns.row_offsets.iter().map(|&offset| Value::from(offset)).collect();
    assert_eq!(&offsets, fields["registered_row_offsets"].as_array().unwrap());
    let shared: Vec<_> =
        columns.shared_group_ids.iter().map(|ids| Value::from(ids.to_vec())).collect();
    assert_eq!(&shared, fields["registered_shared_group_ids"].as_array().unwrap());
}
