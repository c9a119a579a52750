//! Every byte that the reference encoder and real workers made is read, and made again.

mod support;

use kvbaton_core::ids::LayoutId;
use kvbaton_core::wire::{Form, Limits, Pull, Reply, ToPrefill};
use serde_json::{Map, Value, json};

fn decode(name: &str, bytes: &[u8]) -> Pull {
    match ToPrefill::decode(bytes, &Limits::default()) {
        Ok(ToPrefill::Pull(pull)) => pull,
        other => panic!("{name}: {other:?}"),
    }
}

/// The fields of a pull as the reference names them, all of them.
fn pull_fields(pull: &Pull) -> Value {
    let layout = pull.layout.clone().unwrap_or_default();
    let requests: Map<_, _> = pull
        .requests
        .iter()
        .map(|request| {
            let groups = request.groups.iter();
            let blocks: Vec<Vec<_>> = groups.map(|g| g.iter().map(|id| id.0).collect()).collect();
            (request.request_id.to_string(), json!([request.transfer_id.as_str(), blocks]))
        })
        .collect();
    json!({
        "remote_hostname": &*pull.session.host,
        "remote_port": pull.session.port,
        "remote_tp_size": pull.tp_size,
        "remote_tp_rank": pull.tp_rank,
        "req_blocks": requests,
        "kv_caches_base_addr": layout.base_addrs,
        "block_lens": layout.block_lens,
        "kv_block_lens": layout.kv_block_lens,
        "registered_layer_names": layout.layer_names,
        "registered_layer_indices": layout.layer_indices,
        "registered_group_indices": layout.group_indices,
        "registered_shared_group_ids": layout.shared_group_ids,
        "registered_row_offsets": layout.row_offsets,
        "remote_pp_size": pull.pp_size,
        "layout_id": pull.layout_id.0,
    })
}

fn reply_fields(reply: &Reply) -> Value {
    json!({
        "status": reply.status as u8,
        "ok_reqs": reply.ok.as_ref().map(|ids| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>()),
        "err_reqs":
            reply.failed.as_ref().map(|ids| ids.iter().map(|id| id.as_str()).collect::<Vec<_>>()),
        "err_msg": reply.message,
        "layout_id": reply.layout_id.0,
    })
}

/// The vector's fields with the defaults of those that the encoder left out.
fn with_defaults(fields: &Value, defaults: Value) -> Value {
    let mut all = defaults;
    let all_fields = all.as_object_mut().expect("defaults are an object");
    for (field, value) in fields.as_object().expect("fields are an object") {
        all_fields.insert(field.clone(), value.clone());
    }
    all
}

#[test]
fn vectors_of_pulls_are_read_and_written_byte_for_byte() {
    for vector in support::vectors("pulls") {
        let pull = decode(&vector.name, &vector.bytes);
        let defaults = json!({
            "registered_layer_names": [], "registered_layer_indices": [],
            "registered_group_indices": [], "registered_shared_group_ids": [],
            "registered_row_offsets": [], "remote_pp_size": 1, "layout_id": 0,
        });
        let expected = with_defaults(&vector.fields, defaults);
        assert_eq!(pull_fields(&pull), expected, "{}", vector.name);
        assert_eq!(Form::of(&vector.bytes), Form::Stock, "{}", vector.name);
        assert_eq!(pull.extension, None);

        let mut bytes = Vec::new();
        pull.encode_stock(&mut bytes);
        assert_eq!(bytes, vector.bytes, "{}", vector.name);
    }
}

#[test]
fn vectors_of_replies_are_read_and_written_byte_for_byte() {
    for vector in support::vectors("replies") {
        let reply = Reply::decode(&vector.bytes, &Limits::default())
            .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        let defaults =
            json!({ "ok_reqs": null, "err_reqs": null, "err_msg": null, "layout_id": 0 });
        let expected = with_defaults(&vector.fields, defaults);
        assert_eq!(reply_fields(&reply), expected, "{}", vector.name);
        assert_eq!(reply.extension, None);

        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(bytes, vector.bytes, "{}", vector.name);
    }
}

#[test]
fn vectors_captured_from_real_workers_are_read_and_written_byte_for_byte() {
    let captured = support::captured();
    assert!(captured.len() >= 19);
    for (name, captured) in captured {
        let pull = decode(&name, &captured);
        assert_eq!(&*pull.session.host, "127.0.0.1", "{name}");
        assert_eq!(pull.layout_id.is_none(), name.starts_with("d32"), "{name}");
        let mut bytes = Vec::new();
        pull.encode_stock(&mut bytes);
        assert_eq!(bytes, captured, "{name}");
    }
}

#[test]
fn l06_vectors_rely_on_the_cache_only_with_an_id_and_without_addresses() {
    for vector in support::vectors("pulls") {
        let pull = decode(&vector.name, &vector.bytes);
        let addresses = vector.fields["kv_caches_base_addr"].as_array().expect("a list");
        let has_id = vector.fields.get("layout_id").is_some();
        assert_eq!(pull.layout.is_none(), addresses.is_empty() && has_id, "{}", vector.name);
    }
    // An empty layout of a peer that predates layout ids is a layout.
    let mut pull = decode("no requests", &support::pull_vector("no requests"));
    pull.layout_id = LayoutId::NONE;
    let mut bytes = Vec::new();
    pull.encode_stock(&mut bytes);
    assert_eq!(decode("no id", &bytes).layout, Some(Default::default()));
}
