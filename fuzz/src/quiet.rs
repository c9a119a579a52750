//! Panics as texts: a run that panics is a result, and a shrink makes thousands of them.

use std::cell::RefCell;
use std::panic::{self, UnwindSafe};
use std::sync::Once;

thread_local! {
    /// The text of this thread's last panic; `None` while nobody catches.
    static CAUGHT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `run`.
///
/// # Errors
/// The text of its panic and where it was; nothing is printed.
pub fn catch<T>(run: impl FnOnce() -> T + UnwindSafe) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            let caught = CAUGHT.with_borrow_mut(|caught| match caught {
                Some(text) => {
                    *text = info.to_string();
                    true
                }
                None => false,
            });
            if !caught {
                before(info);
            }
        }));
    });
    CAUGHT.set(Some(String::new()));
    let result = panic::catch_unwind(run);
    let text = CAUGHT.take().unwrap_or_default();
    result.map_err(|_| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_text_with_its_place() {
        assert_eq!(catch(|| 3), Ok(3));
        let text = catch(|| panic!("lost {}", "it")).unwrap_err();
        assert!(text.contains("lost it") && text.contains("quiet.rs"), "{text}");
    }
}
