//! Reads values back from nodes' metrics, which are Prometheus text.

/// Every sample of a metric: its labels as written (`{a="b"}`, or nothing) and its value.
fn samples<'a>(text: &'a str, metric: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        if !rest.starts_with(['{', ' ']) {
            return None;
        }
        let (labels, value) = rest.rsplit_once(' ')?;
        Some((labels, value.parse().ok()?))
    })
}

/// Sum of the samples that carry `label` (`name="value"`), over all texts.
#[must_use]
pub fn sum<'a>(texts: impl IntoIterator<Item = &'a str>, metric: &str, label: &str) -> f64 {
    let of = |text: &str| -> f64 {
        samples(text, metric).filter(|(labels, _)| labels.contains(label)).map(|it| it.1).sum()
    };
    texts.into_iter().map(of).sum()
}

/// The largest value of a quantile among the nodes that have recorded something.
#[must_use]
pub fn worst_quantile<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    metric: &str,
    quantile: &str,
) -> Option<f64> {
    let label = format!("quantile=\"{quantile}\"");
    let count = format!("{metric}_count");
    texts
        .into_iter()
        .filter(|text| sum([*text], &count, "") > 0.0)
        .flat_map(|text| samples(text, metric).filter(|(labels, _)| labels.contains(&label)))
        .map(|(_, value)| value)
        .reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# TYPE pulls_total counter
pulls_total{layout=\"sent\"} 2
pulls_total{layout=\"omitted\"} 40
pulls_total_more 7

pull_seconds{quantile=\"0.5\"} 0.001
pull_seconds{quantile=\"0.99\"} 0.25
pull_seconds_count 3
";

    #[test]
    fn samples_are_found_by_metric_and_label() {
        assert_eq!(sum([TEXT, TEXT], "pulls_total", "layout=\"sent\""), 4.0);
        assert_eq!(sum([TEXT], "pulls_total", ""), 42.0);
        let idle = TEXT.replace("count 3", "count 0").replace("0.25", "9");
        assert_eq!(worst_quantile([TEXT, &idle], "pull_seconds", "0.99"), Some(0.25));
        assert_eq!(worst_quantile([&*idle], "pull_seconds", "0.99"), None);
    }
}
