//! A layout's columns as a table of regions.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fmt::Write;

/// The stock layout fields, under the short names or those of the wire.
#[derive(Debug, Deserialize)]
struct Columns {
    #[serde(alias = "kv_caches_base_addr")]
    base_addrs: Vec<u64>,
    block_lens: Vec<u64>,
    kv_block_lens: Vec<u64>,
    #[serde(default, alias = "registered_layer_names")]
    layer_names: Vec<String>,
    #[serde(default, alias = "registered_layer_indices")]
    layer_indices: Vec<i64>,
    #[serde(default, alias = "registered_group_indices")]
    group_indices: Vec<i64>,
    #[serde(default, alias = "registered_shared_group_ids")]
    shared_group_ids: Vec<Vec<i64>>,
    #[serde(default, alias = "registered_row_offsets")]
    row_offsets: Vec<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Wrapped { layout: Columns },
    Plain(Columns),
}

/// Describes a layout given as JSON.
pub(super) fn describe(bytes: &[u8]) -> Result<String> {
    let file: File =
        serde_json::from_slice(bytes).context("not a JSON object of layout columns")?;
    let (File::Wrapped { layout: it } | File::Plain(it)) = file;
    let regions = it.base_addrs.len();
    for (name, len) in
        [("block_lens", it.block_lens.len()), ("kv_block_lens", it.kv_block_lens.len())]
    {
        ensure!(len == regions, "{name} has {len} entries, base_addrs {regions}");
    }
    let mut out = format!("{regions} regions\n");
    writeln!(
        out,
        "{:>4}  {:>18} {:>10} {:>10}  {:>5} {:>8}  {:>10}  layer",
        "#", "base", "stride", "payload", "index", "group", "row offset"
    )?;
    for (row, base) in it.base_addrs.iter().enumerate() {
        let index = it.layer_indices.get(row).map_or("-".into(), i64::to_string);
        let group = match it.group_indices.get(row) {
            None => "-".into(),
            Some(-1) => format!("{:?}", it.shared_group_ids.get(row).cloned().unwrap_or_default()),
            Some(group) => group.to_string(),
        };
        let offset = match it.row_offsets.get(row) {
            None | Some(-1) => "-".into(),
            Some(offset) => offset.to_string(),
        };
        let name = it.layer_names.get(row).map_or("-", String::as_str).escape_debug();
        let (stride, payload) = (it.block_lens[row], it.kv_block_lens[row]);
        writeln!(
            out,
            "{row:>4}  {base:>#18x} {stride:>10} {payload:>10}  {index:>5} {group:>8}  {offset:>10}  {name}"
        )?;
        if payload > stride {
            writeln!(
                out,
                "      payload exceeds stride: neighbouring blocks would be overwritten"
            )?;
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_lists_its_regions_and_what_is_wrong_with_them() {
        let text = describe(
            br#"{"layout": {"base_addrs": [4096, 8192], "block_lens": [64, 64],
                "kv_block_lens": [64, 128], "layer_names": ["model.layers.0.attn", "b"],
                "group_indices": [0, -1], "shared_group_ids": [[0], [0, 1]]}}"#,
        )
        .unwrap();
        assert!(text.contains("model.layers.0.attn") && text.contains("[0, 1]"), "{text}");
        assert_eq!(text.matches("payload exceeds stride").count(), 1, "{text}");
    }

    #[test]
    fn columns_of_different_lengths_are_named() {
        let error = describe(br#"{"base_addrs": [1], "block_lens": [], "kv_block_lens": [1]}"#);
        assert!(error.unwrap_err().to_string().contains("block_lens has 0 entries"));
    }
}
