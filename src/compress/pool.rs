//! Adaptive average pooling to a smaller grid, and the compressor that does nothing.

use super::layout::Layout;
use super::merge::{mean_of, restore_length};
use super::plan::{Plan, at_least_one, overlapping_bin, target_grid};
use super::rows::Rows;
use super::tokens::{Made, VisualTokens, to_u32};
use super::{Compressor, Result};
use crate::error::Error;

/// All rows, untouched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Full;

impl Compressor for Full {
    fn id(&self) -> String {
        "full".into()
    }

    fn plan(&self, layout: &Layout, _budget: usize) -> Result<Plan> {
        Ok(Plan::full(layout))
    }

    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens> {
        plan.check(rows.layout())?;
        Ok(VisualTokens::full(rows.embedding(), *rows.layout()))
    }
}

/// Mean of each bin of a target grid; bins overlap by a cell where the grids do not divide.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pool {
    /// Columns and rows; `None`: the grid that suits the budget.
    pub(super) grid: Option<(usize, usize)>,
    /// Give each mean the mean length of its members.
    pub(super) keep_length: bool,
}

impl Compressor for Pool {
    fn id(&self) -> String {
        let length = u8::from(self.keep_length);
        match self.grid {
            Some((columns, rows)) => format!("pool:grid={columns}x{rows},norm={length}"),
            None => format!("pool:norm={length}"),
        }
    }

    fn plan(&self, layout: &Layout, budget: usize) -> Result<Plan> {
        at_least_one(budget)?;
        let Some((columns, rows)) = self.grid else {
            let grid =
                if budget >= layout.cells() { (layout.columns(), layout.rows()) } else { target_grid(layout, budget) };
            return Ok(Plan::gridded(layout, grid));
        };
        if columns > layout.columns() || rows > layout.rows() || columns * rows > budget {
            return Err(Error::BadParameter {
                name: "pool grid",
                value: format!("{columns}x{rows}"),
                reason: format!("at most {}x{} and {budget} cells", layout.columns(), layout.rows()),
            });
        }
        Ok(Plan::gridded(layout, (columns, rows)))
    }

    fn apply(&self, rows: &Rows<'_>, plan: &Plan) -> Result<VisualTokens> {
        plan.check(rows.layout())?;
        let layout = rows.layout();
        if plan.is_full() {
            return Ok(VisualTokens::full(rows.embedding(), *layout));
        }
        let (columns, grid_rows) = plan.grid().unwrap_or((layout.columns(), layout.rows()));
        let mut made = Vec::with_capacity(columns * grid_rows);
        for by in 0..grid_rows {
            for bx in 0..columns {
                let (x0, x1) = overlapping_bin(bx, columns, layout.columns());
                let (y0, y1) = overlapping_bin(by, grid_rows, layout.rows());
                let cell = |x: usize, y: usize| y * layout.columns() + x;
                let members: Vec<u32> = (y0..y1).flat_map(|y| (x0..x1).map(move |x| to_u32(cell(x, y)))).collect();
                // middles of neighbouring bins differ: a bin begins and ends at least one cell later than the one before
                let anchor = cell((x0 + x1 - 1) / 2, (y0 + y1 - 1) / 2);
                let mut values = mean_of(rows, &members);
                if self.keep_length {
                    restore_length(rows, &members, &mut values);
                }
                made.push(Made { anchor, members, values: Some(values) });
            }
        }
        VisualTokens::assemble(rows, made, Some((columns, grid_rows)))
    }
}
