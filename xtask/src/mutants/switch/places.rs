//! Where in the syntax tree mutants stand.

use super::{Change, Choices, Genre, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// Finds mutants' places in the syntax tree.
pub(super) struct Finder<'a> {
    pub(super) by_place: BTreeMap<(usize, Genre), Choices>,
    pub(super) source: &'a str,
    pub(super) nodes: Vec<Node>,
    pub(super) unviable: BTreeSet<usize>,
}

fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

impl Finder<'_> {
    fn at(&self, place: usize, genre: Genre) -> Choices {
        self.by_place.get(&(place, genre)).cloned().unwrap_or_default()
    }

    fn push(&mut self, at: Range<usize>, change: Change) {
        self.nodes.push(Node { at, change });
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if let Some(first) = block.stmts.first() {
            let start = range(first).start;
            let choices = self.at(start, Genre::Value);
            if !choices.is_empty() {
                self.push(start..start, Change::Value(choices));
            }
        }
        if let Some(token) = &signature.constness {
            self.push(range(token), Change::NoConst);
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_expr_binary(&mut self, expr: &'ast syn::ExprBinary) {
        let at = range(&expr.op);
        let choices = self.at(at.start, Genre::Binary);
        if has_let(&expr.left) || has_let(&expr.right) {
            // Nothing but `&&` may stand next to a `let`.
            self.unviable.extend(choices.iter().map(|(id, _)| *id));
        } else if !choices.is_empty() {
            let (left, right) = (range(&expr.left), range(&expr.right));
            let operator = self.source[at].to_owned();
            self.push(range(expr), Change::Binary { left, right, operator, choices });
        }
        visit::visit_expr_binary(self, expr);
    }

    fn visit_expr_unary(&mut self, expr: &'ast syn::ExprUnary) {
        let at = range(&expr.op);
        if let Some((id, _)) = self.at(at.start, Genre::Unary).first() {
            let (operand, operator) = (range(&expr.expr), self.source[at].to_owned());
            self.push(range(expr), Change::Unary { operand, operator, id: *id });
        }
        visit::visit_expr_unary(self, expr);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        let wild = |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        if !expr.arms.iter().any(wild) {
            // Without an arm that takes the rest, every one is needed.
            for arm in &expr.arms {
                let ids = self.by_place.remove(&(range(arm).start, Genre::Arm));
                self.unviable.extend(ids.into_iter().flatten().map(|(id, _)| id));
            }
        }
        visit::visit_expr_match(self, expr);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let whole = self.at(range(arm).start, Genre::Arm);
        match &arm.guard {
            None => {
                if let Some((id, _)) = whole.first() {
                    let end = range(&arm.pat).end;
                    self.push(end..end, Change::NewGuard(*id));
                }
            }
            Some((_, guard)) => {
                let mut choices = self.at(range(guard).start, Genre::Guard);
                choices.extend(whole);
                if !choices.is_empty() {
                    self.push(range(guard), Change::Guard(choices));
                }
            }
        }
        visit::visit_arm(self, arm);
    }
}

fn has_let(expr: &syn::Expr) -> bool {
    match expr {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(inner) => has_let(&inner.left) || has_let(&inner.right),
        _ => false,
    }
}
