//! Log lines, to stderr.

use tracing_subscriber::EnvFilter;

/// Writes log lines to stderr as `RUST_LOG` says; warnings and errors without it.
pub fn to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours());
    // Somebody who embeds us may have one already: theirs stays.
    let _ = subscriber.with_writer(std::io::stderr).try_init();
}

fn colours() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}
