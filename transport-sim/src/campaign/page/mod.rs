//! A run as one page: a lane for each node, time downwards, messages and writes as arrows,
//! lifecycles, holds and loads as bars, the violation in red. One file, nothing external.

mod arrows;
mod bars;
mod lanes;
mod rows;
mod select;
mod style;
mod svg;

use super::report;
use super::words;
use crate::oracles::Violation;
use crate::plan::Plan;
use crate::world::Outcome;
use lanes::Lanes;
use rows::Rows;
use select::Selection;
use std::fmt::Write;
use svg::{escape, shorten};

/// Events that a page shows at most; beyond that, those around the violation.
pub const MOST_EVENTS: usize = 3_000;

/// Letters of a label that fit beside a lane's line.
const LABEL: usize = 29;

/// Draws a run of a plan. `notes` are lines for the page's head, such as the command that
/// runs it again.
#[must_use]
pub fn page(plan: &Plan, outcome: &Outcome, title: &str, notes: &[String]) -> String {
    let violation = outcome.violation.as_ref();
    let selection = Selection::new(&outcome.events, violation, MOST_EVENTS);
    let lanes = Lanes::new(plan, &outcome.events, &selection);
    let rows = Rows::new(&outcome.events, &selection, violation);
    let mut html = String::new();
    let title = escape(title);
    let _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n\
         <title>{title}</title>\n<style>{}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>\n",
        style::CSS
    );
    head(&mut html, plan, outcome, &selection, notes);
    html += style::LEGEND;
    html += "</header>\n";
    lanes.heads(&mut html);
    drawing(&mut html, plan, outcome, &selection, &lanes, &rows);
    let _ = write!(html, "<script>{}</script>\n</body>\n</html>\n", style::SCRIPT);
    html
}

/// The plan and the violation in words.
fn head(html: &mut String, plan: &Plan, outcome: &Outcome, shown: &Selection, notes: &[String]) {
    if let Some(violation) = &outcome.violation {
        let Violation { oracle, rules, text, event } = violation;
        let _ = writeln!(
            html,
            "<p class=\"bad\"><a href=\"#violation\"><b>{oracle}</b> {}</a> at event {event}: {}</p>",
            rules.join(" "),
            escape(text)
        );
    }
    for note in notes {
        let _ = writeln!(html, "<p class=\"note\">{}</p>", escape(note));
    }
    let odds = words::differences(&plan.odds).join(", ");
    let sites: Vec<_> = plan.sites.iter().map(String::as_str).collect();
    let lines = [
        ("scenario", format!("{}, seed {}, commit {}", plan.scenario, plan.seed, report::commit())),
        ("engines", words::fleet(&plan.fleet)),
        ("chance", if odds.is_empty() { "calm".into() } else { odds }),
        ("sites", if sites.is_empty() { "none".into() } else { sites.join(", ") }),
    ];
    html.push_str("<dl>\n");
    for (name, text) in lines {
        let _ = writeln!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&text));
    }
    html.push_str("</dl>\n<details><summary>requests, faults and operations</summary><pre>\n");
    for line in words::schedule(plan) {
        let _ = writeln!(html, "{}", escape(&line));
    }
    html.push_str("</pre></details>\n");
    if let Some(note) = shown.note() {
        let _ = writeln!(html, "<p class=\"note\">{note}</p>");
    }
}

fn drawing(
    html: &mut String,
    plan: &Plan,
    outcome: &Outcome,
    shown: &Selection,
    lanes: &Lanes,
    rows: &Rows,
) {
    let (width, height) = (lanes.width(), rows.height());
    let _ = writeln!(
        html,
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" role=\"img\">"
    );
    html.push_str(style::MARKERS);
    lanes.lines(html, height);
    rows.axis(html, width);
    rows.violation(html, width, outcome.violation.as_ref());
    bars::draw(html, plan, &outcome.events, shown, lanes, rows);
    arrows::draw(html, &outcome.events, shown, lanes, rows);
    let bad = outcome.violation.as_ref().map(|it| it.event);
    for index in shown.iter() {
        let event = &outcome.events[index];
        let (Some(x), Some(y)) = (lanes.x(event.lane), rows.y(index)) else { continue };
        let class = if bad == Some(index) { "e bad" } else { "e" };
        let key = svg::key(&event.what).map(|it| format!(" data-k=\"{it}\"")).unwrap_or_default();
        let label = escape(&shorten(&event.what.to_string(), LABEL));
        let text = escape(&event.to_string());
        let (left, down) = (x + 9, y + 4);
        let _ = writeln!(
            html,
            "<g class=\"{class}\"{key}><title>{text}</title><circle cx=\"{x}\" cy=\"{y}\" r=\"3\" />\
             <text x=\"{left}\" y=\"{down}\">{label}</text></g>"
        );
    }
    html.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::fake;
    use crate::history::{Event, Lane, What};
    use crate::world::RunOptions;

    fn failing() -> (Plan, Outcome) {
        let run = |seed| (fake::plan(seed), fake::run(&fake::plan(seed), &RunOptions::default()));
        (0..).map(run).find(|it| it.1.violation.is_some()).expect("a failing seed")
    }

    /// Whether every tag that opens closes, in order.
    fn assert_well_formed(html: &str) {
        let mut open = Vec::new();
        let body = html.strip_prefix("<!DOCTYPE html>").expect("a doctype");
        let cut = |html: &str, from: &str, to: &str| {
            let (before, rest) = html.split_once(from).expect("a start");
            let (_, after) = rest.split_once(to).expect("an end");
            format!("{before}{after}")
        };
        let body = cut(&cut(body, "<script>", "</script>"), "<style>", "</style>");
        for tag in body.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag ends");
            assert!(!text.contains('>'), "unescaped: {text}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{name} closes");
            } else if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().expect("a name"));
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_page_has_lanes_arrows_bars_and_the_violation() {
        let (plan, outcome) = failing();
        let note = vec!["cargo xtask sim replay --plan a.json".to_owned()];
        let html = page(&plan, &outcome, "mixed <17>", &note);
        assert_well_formed(&html);
        for part in [
            "got &lt;other&gt; bytes",
            "mixed &lt;17&gt;",
            ">e0.r0<",
            ">e0.r1<",
            ">e1.r0<",
            ">world<",
            "id=\"violation\"",
            "class=\"pull\"",
            "class=\"reply\"",
            "class=\"write\"",
            "class=\"bar hold\"",
            "class=\"bar load\"",
            "class=\"bar registered\"",
            "replay --plan a.json",
            "prefers-color-scheme: dark",
        ] {
            assert!(html.contains(part), "{part} is missing");
        }
        for external in ["http:", "https:", "src=", "@import", "url(h"] {
            assert!(!html.contains(external), "{external}");
        }
        assert_eq!(html, page(&plan, &outcome, "mixed <17>", &note));
    }

    #[test]
    fn a_lost_message_ends_in_a_cross() {
        let plan = fake::plan(1);
        let outcome = fake::run(&plan, &RunOptions::default());
        assert!(page(&plan, &outcome, "", &[]).contains("class=\"lost\""));
    }

    #[test]
    fn a_long_run_is_cut_to_what_is_around_the_violation() {
        let (plan, mut outcome) = failing();
        let more = |at| Event { at, lane: Lane::Clients, what: What::Disconnected { request: 77 } };
        let mut events: Vec<_> = (0..5_000).map(more).collect();
        let end = 6_000;
        outcome.events.iter_mut().for_each(|it| it.at += end);
        if let Some(violation) = &mut outcome.violation {
            violation.event += events.len();
        }
        events.append(&mut outcome.events);
        outcome.events = events;
        let html = page(&plan, &outcome, "long", &[]);
        assert_well_formed(&html);
        assert!(html.contains("events around the violation"));
        assert!(html.contains("id=\"violation\""));
        assert!(html.matches("<circle").count() <= MOST_EVENTS + 20);
    }
}
