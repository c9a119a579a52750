//! What a worker's node counted since it was asked last.

use std::collections::BTreeMap;

/// Values of counters by their name and labels, as the metrics' text has them.
#[derive(Debug, Default)]
pub struct Counted {
    last: BTreeMap<String, f64>,
}

impl Counted {
    /// What has grown since the last call. Histograms count as their sum and count.
    pub fn growth(&mut self, text: &str) -> BTreeMap<String, f64> {
        let mut grown = BTreeMap::new();
        let mut gauge = false;
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                gauge = kind.ends_with(" gauge");
            }
            if gauge || line.starts_with('#') {
                continue;
            }
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let name = series.split('{').next().unwrap_or(series);
            let Ok(value) = value.parse::<f64>() else { continue };
            if name.ends_with("_bucket") {
                continue;
            }
            let before = self.last.insert(series.to_owned(), value).unwrap_or(0.0);
            if value > before {
                grown.insert(series.to_owned(), value - before);
            }
        }
        grown
    }
}
