//! The `OpenMetrics` text format, made from the Prometheus text format.

use rustc_hash::FxHashMap;

/// What scrapers ask for and what the answer is called.
pub(crate) const MEDIA: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The same metrics in the other format: a counter is named without `_total` where it is described, the bounds of
/// buckets have a point, quotes in a help text are escaped, and the last line says that nothing is missing. `exemplars` is what
/// stands behind samples, by their names and labels.
pub(crate) fn from_prometheus(text: &str, exemplars: &FxHashMap<String, String>) -> String {
    let mut converted = String::with_capacity(text.len() + 64);
    for line in text.lines() {
        if let Some((what, rest)) = line.strip_prefix("# ").and_then(|described| described.split_once(' ')) {
            let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            let name = name.strip_suffix("_total").unwrap_or(name);
            let rest = if what == "HELP" { rest.replace('"', "\\\"") } else { rest.to_owned() };
            converted.extend(["# ", what, " ", name, " ", &rest]);
        } else {
            converted.push_str(&with_canonical_bound(line));
            let sample = line.rsplit_once(' ').map_or(line, |(sample, _)| sample);
            exemplars.get(sample).into_iter().for_each(|exemplar| converted.push_str(exemplar));
        }
        converted.push('\n');
    }
    converted.push_str("# EOF\n");
    converted
}

/// A bucket whose bound is written as a float: `le="1"` becomes `le="1.0"`. The bound is its last label.
fn with_canonical_bound(line: &str) -> String {
    const LABEL: &str = "le=\"";
    let is_bucket = line.split_once('{').is_some_and(|(name, _)| name.ends_with("_bucket"));
    let start = line.rfind(LABEL).filter(|&at| is_bucket && matches!(line.as_bytes()[at - 1], b'{' | b','));
    let Some(start) = start.map(|at| at + LABEL.len()) else { return line.to_owned() };
    let Some(end) = line[start..].find('"').map(|length| start + length) else { return line.to_owned() };
    let is_whole = line[start..end].bytes().all(|byte| byte.is_ascii_digit());
    if is_whole { format!("{}.0{}", &line[..end], &line[end..]) } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_buckets_and_help_texts_follow_the_format() {
        let text = "# HELP a_total Some \"text\".\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\
                    # TYPE b histogram\nb_bucket{x=\"y\",le=\"1\"} 2\nb_bucket{le=\"2.5\"} 2\nb_bucket{le=\"+Inf\"} 3\n\
                    c_total{scale=\"1\"} 1\nd_bucket{role=\"1\",le=\"1\"} 1\n";
        let expected = "# HELP a Some \\\"text\\\".\n# TYPE a counter\na_total{x=\"1\"} 3\n\
                        # TYPE b histogram\nb_bucket{x=\"y\",le=\"1.0\"} 2\nb_bucket{le=\"2.5\"} 2\n\
                        b_bucket{le=\"+Inf\"} 3\nc_total{scale=\"1\"} 1\n\
                        d_bucket{role=\"1\",le=\"1.0\"} 1\n# EOF\n";
        assert_eq!(from_prometheus(text, &FxHashMap::default()), expected);
    }
}
