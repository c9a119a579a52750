//! Shows a page in a browser.

use std::process::{Command, Stdio};

/// Asks the desktop to show a file; says where it is when nothing can.
pub fn show(path: &str) {
    let programs = if cfg!(target_os = "macos") { ["open"].as_slice() } else { &["xdg-open"] };
    for program in programs {
        let mut command = Command::new(program);
        command.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return;
        }
    }
    eprintln!("nothing here can show a page; open {path} in a browser");
}
