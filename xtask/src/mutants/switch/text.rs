//! A file's text with mutants behind their switches.

use super::{Change, Choices, Node};
use std::collections::BTreeSet;
use std::ops::Range;

/// A call of the switch.
fn on(id: usize) -> String {
    format!("crate::switch::on({id})")
}

fn marked(id: usize, text: &str) -> String {
    format!("/*<{id}*/{text}/*>{id}*/")
}

/// Writes a file's text with its nodes changed.
pub(super) struct Tree<'a> {
    pub(super) source: &'a str,
    pub(super) nodes: &'a [Node],
    pub(super) off: &'a BTreeSet<usize>,
}

impl Tree<'_> {
    /// The text of `within`, with the nodes changed that lie in it, but for `except`.
    pub(super) fn text(&self, within: Range<usize>, except: Option<usize>) -> String {
        let inside: Vec<usize> = (0..self.nodes.len())
            .filter(|it| Some(*it) != except && self.lies(*it, &within))
            .collect();
        let mut outermost: Vec<usize> = inside
            .iter()
            .copied()
            .filter(|it| !inside.iter().any(|by| self.holds(*by, *it)))
            .collect();
        outermost.sort_by_key(|it| (self.nodes[*it].at.start, self.nodes[*it].at.end));
        let (mut out, mut at) = (String::new(), within.start);
        for index in outermost {
            let node = &self.nodes[index];
            out += &self.source[at..node.at.start];
            out += &self.changed(index);
            at = node.at.end;
        }
        out + &self.source[at..within.end]
    }

    /// What begins a function lies in its block, not in the expression that comes first.
    fn lies(&self, index: usize, within: &Range<usize>) -> bool {
        let at = &self.nodes[index].at;
        let starts = at.is_empty() && at.start == within.start && within.start > 0;
        within.start <= at.start && at.end <= within.end && !starts
    }

    fn holds(&self, by: usize, it: usize) -> bool {
        let (outer, inner) = (&self.nodes[by].at, &self.nodes[it].at);
        match (outer == inner, inner.is_empty()) {
            (true, _) => by < it && !outer.is_empty(),
            (false, true) => outer.start < inner.start && inner.end < outer.end,
            (false, false) => outer.start <= inner.start && inner.end <= outer.end,
        }
    }

    fn live(&self, choices: &Choices) -> Choices {
        choices.iter().filter(|(id, _)| !self.off.contains(id)).cloned().collect()
    }

    fn changed(&self, index: usize) -> String {
        let node = &self.nodes[index];
        match &node.change {
            Change::NoConst => String::new(),
            Change::Value(choices) => {
                let early = |(id, value): &(usize, String)| {
                    format!("if {} {{ {} }} ", on(*id), marked(*id, &format!("return {value};")))
                };
                self.live(choices).iter().map(early).collect()
            }
            Change::NewGuard(id) if self.off.contains(id) => String::new(),
            Change::NewGuard(id) => format!(" if {} ", marked(*id, &format!("!{}", on(*id)))),
            Change::Guard(choices) => {
                let guard = self.text(node.at.clone(), Some(index));
                self.live(choices).into_iter().fold(guard, |guard, (id, value)| {
                    let text = match value.as_str() {
                        "true" => format!("({} || ({guard}))", on(id)),
                        _ => format!("(!{} && ({guard}))", on(id)),
                    };
                    marked(id, &text)
                })
            }
            Change::Unary { operand, operator, id } => {
                let operand = self.text(operand.clone(), None);
                if self.off.contains(id) {
                    return format!("{operator}{operand}");
                }
                let choice = format!("if {} {{ __it }} else {{ {operator}__it }}", on(*id));
                marked(*id, &format!("(match ({operand}) {{ __it => {choice} }})"))
            }
            Change::Binary { left, right, operator, choices } => {
                let between = &self.source[left.end..right.start];
                let (left, right) = (self.text(left.clone(), None), self.text(right.clone(), None));
                let choices = self.live(choices);
                if choices.is_empty() {
                    return format!("{left}{between}{right}");
                }
                binary(&left, operator, &right, &choices)
            }
        }
    }
}

/// `left operator right`, with choices of other operators. Each operand stands once, but
/// for what `&&` and `||` may not evaluate.
fn binary(left: &str, operator: &str, right: &str, choices: &Choices) -> String {
    // Names that core does not use: an operand may stand in their scope.
    let (before, l, r) = match operator {
        "&&" | "||" => (format!("{{ let __l = {left}; "), "__l", format!("({right})")),
        "==" | "!=" | "<" | ">" | "<=" | ">=" => {
            (format!("match (&({left}), &({right})) {{ (__l, __r) => "), "*__l", "*__r".to_owned())
        }
        _ if operator.ends_with('=') => {
            (format!("match ({right}) {{ __r => "), left, "__r".to_owned())
        }
        _ => (format!("match (({left}), ({right})) {{ (__l, __r) => "), "__l", "__r".to_owned()),
    };
    let other = |(id, operator): &(usize, String)| {
        format!("if {} {{ {} }} else ", on(*id), marked(*id, &format!("{l} {operator} {r}")))
    };
    let others: String = choices.iter().map(other).collect();
    format!("({before}{others}{{ {l} {operator} {r} }} }})")
}
