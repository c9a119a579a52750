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

/// The largest value of a quantile among the nodes that have recorded something, read off
/// a histogram's buckets: exact to a bucket, linear within it.
#[must_use]
pub fn worst_quantile<'a>(
    texts: impl IntoIterator<Item = &'a str>,
    metric: &str,
    quantile: f64,
) -> Option<f64> {
    let of = |text: &str| quantile_of(text, metric, quantile);
    texts.into_iter().filter_map(of).reduce(f64::max)
}

fn quantile_of(text: &str, metric: &str, quantile: f64) -> Option<f64> {
    let name = format!("{metric}_bucket");
    let buckets: Vec<(f64, f64)> = samples(text, &name)
        .filter_map(|(labels, count)| {
            let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
            Some((bound.parse().ok()?, count))
        })
        .collect();
    let total = buckets.last()?.1;
    let rank = total * quantile;
    let (mut low, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if total > 0.0 && count >= rank {
            let share = (rank - below) / (count - below).max(1.0);
            return Some(if bound.is_finite() { low + (bound - low) * share } else { low });
        }
        (low, below) = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# TYPE pulls_total counter
pulls_total{layout=\"sent\"} 2
pulls_total{layout=\"omitted\"} 40
pulls_total_more 7

pull_seconds_bucket{le=\"0.001\"} 0
pull_seconds_bucket{le=\"0.002\"} 50
pull_seconds_bucket{le=\"0.004\"} 100
pull_seconds_bucket{le=\"+Inf\"} 100
";

    #[test]
    fn samples_are_found_by_metric_and_label() {
        assert_eq!(sum([TEXT, TEXT], "pulls_total", "layout=\"sent\""), 4.0);
        assert_eq!(sum([TEXT], "pulls_total", ""), 42.0);
    }

    #[test]
    fn quantiles_are_read_off_the_buckets_of_the_slowest_node() {
        let at = |text, quantile| worst_quantile([text], "pull_seconds", quantile);
        assert_eq!(at(TEXT, 0.5), Some(0.002));
        assert_eq!(at(TEXT, 0.75), Some(0.003));
        let slower = TEXT.replace("0.004", "0.008");
        assert_eq!(worst_quantile([TEXT, &*slower], "pull_seconds", 1.0), Some(0.008));
        let idle = TEXT.replace("} 50", "} 0").replace("} 100", "} 0");
        assert_eq!(at(&idle, 0.5), None);
    }
}
