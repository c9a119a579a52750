//! Plain columns for people.

/// Rows of equally many cells; the first row is the heading.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(ToString::to_string).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has as many cells as the heading");
        self.rows.push(cells);
    }

    /// First column left, the others right aligned.
    pub fn print(&self) {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let mut line = format!("{:<1$}", row[0], widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                line.push_str(&format!("  {cell:>width$}"));
            }
            println!("{}", line.trim_end());
        }
    }
}
