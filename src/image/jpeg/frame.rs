//! The frame header: size, components, sampling, and the memory that follows from them.

use super::super::limits::Job;
use super::super::sniff::Format;
use super::{Fault, damaged};

/// One colour component and its samples.
pub(super) struct Component {
    pub id: u8,
    /// Horizontal and vertical sampling factor, 1 to 4.
    pub h: usize,
    pub v: usize,
    pub quant_index: usize,
    /// Samples that belong to the picture.
    pub width: usize,
    pub height: usize,
    /// Blocks per row and column, filled up to whole MCUs.
    pub blocks_per_row: usize,
    pub blocks_per_column: usize,
    /// Quantisation steps, taken over when the component's first scan begins; natural order.
    pub quant: Option<[u16; 64]>,
    /// `[blocks_per_column * 8, blocks_per_row * 8]` samples.
    pub plane: Vec<u8>,
    /// Progressive only: one bit for every coefficient (zigzag order) that was sent down to its last bit.
    pub finished: u64,
    /// Progressive only: `[blocks_per_column, blocks_per_row, 64]` coefficients in natural order.
    pub coefficients: Vec<i16>,
}

impl Component {
    /// Columns of `plane`.
    pub(super) fn stride(&self) -> usize {
        self.blocks_per_row * 8
    }
}

/// The picture as its frame header (SOF) declares it.
pub(super) struct JpegFrame {
    pub progressive: bool,
    pub width: usize,
    pub height: usize,
    /// Largest sampling factors.
    pub h_max: usize,
    pub v_max: usize,
    pub mcus_per_row: usize,
    pub mcus_per_column: usize,
    pub components: Vec<Component>,
}

impl JpegFrame {
    /// Parses a SOF0, SOF1 or SOF2 segment; `data_bytes` is what is left of the file after it.
    ///
    /// Limits are checked, and a file too short to hold even the cheapest code for every block is refused, before
    /// anything is allocated.
    pub(super) fn parse(segment: &[u8], progressive: bool, data_bytes: usize, job: Job<'_>) -> Result<Self, Fault> {
        let &[precision, h1, h0, w1, w0, count, ref specs @ ..] = segment else {
            return Err(damaged("the frame header is too short"));
        };
        if precision != 8 {
            return Err(Fault::Unsupported(format!("a JPEG with {precision} bits per sample")));
        }
        let (width, height) = (u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0]));
        if height == 0 && width != 0 {
            return Err(Fault::Unsupported("a JPEG that states its height after the picture data".into()));
        }
        job.check_size(Format::Jpeg, width.into(), height.into())?;
        if !matches!(count, 1 | 3 | 4) {
            return Err(Fault::Unsupported(format!("a JPEG with {count} colour components")));
        }
        if specs.len() != usize::from(count) * 3 {
            return Err(damaged("the frame header's length does not fit its number of components"));
        }
        let (width, height) = (usize::from(width), usize::from(height));
        let (specs, _) = specs.as_chunks::<3>();
        let h_max = specs.iter().map(|spec| usize::from(spec[1] >> 4)).max().unwrap_or(1);
        let v_max = specs.iter().map(|spec| usize::from(spec[1] & 15)).max().unwrap_or(1);
        let mut frame = Self {
            progressive,
            width,
            height,
            h_max,
            v_max,
            mcus_per_row: width.div_ceil(h_max.max(1) * 8),
            mcus_per_column: height.div_ceil(v_max.max(1) * 8),
            components: Vec::with_capacity(specs.len()),
        };
        for &[id, sampling, quant_index] in specs {
            frame.push_component(id, sampling, quant_index)?;
        }
        frame.allocate(data_bytes, job)?;
        Ok(frame)
    }

    fn push_component(&mut self, id: u8, sampling: u8, quant_index: u8) -> Result<(), Fault> {
        let (h, v) = (usize::from(sampling >> 4), usize::from(sampling & 15));
        if !(1..=4).contains(&h) || !(1..=4).contains(&v) || quant_index > 3 {
            return Err(damaged(format!("component {id} has sampling {h}x{v} and quantisation table {quant_index}")));
        }
        if !self.h_max.is_multiple_of(h) || !self.v_max.is_multiple_of(v) {
            return Err(Fault::Unsupported(format!("a JPEG with fractional chroma sampling ({h}x{v})")));
        }
        if self.components.iter().any(|other| other.id == id) {
            return Err(damaged(format!("two components have the number {id}")));
        }
        self.components.push(Component {
            id,
            h,
            v,
            quant_index: usize::from(quant_index),
            width: (self.width * h).div_ceil(self.h_max),
            height: (self.height * v).div_ceil(self.v_max),
            blocks_per_row: self.mcus_per_row * h,
            blocks_per_column: self.mcus_per_column * v,
            quant: None,
            finished: 0,
            plane: Vec::new(),
            coefficients: Vec::new(),
        });
        Ok(())
    }

    fn allocate(&mut self, data_bytes: usize, job: Job<'_>) -> Result<(), Fault> {
        let samples = |c: &Component| c.blocks_per_row * c.blocks_per_column * 64;
        let total: usize = self.components.iter().map(samples).sum();
        let bytes_per_sample = if self.progressive { 3 } else { 1 };
        job.check_memory((total * bytes_per_sample + self.width * self.height * 3) as u64)?;
        // A block takes a DC code and, unless the DC has a scan of its own, at least an end-of-block code: 1 bit each.
        let needed_blocks: usize = self.components.iter().map(|c| c.width.div_ceil(8) * c.height.div_ceil(8)).sum();
        let needed_bits = needed_blocks * if self.progressive { 1 } else { 2 };
        if data_bytes.saturating_mul(8) < needed_bits {
            return Err(damaged(format!(
                "{}x{} px cannot fit into the {data_bytes} bytes that follow the header; the file is cut off",
                self.width, self.height
            )));
        }
        for component in &mut self.components {
            let samples = samples(component);
            component.plane = vec![0; samples];
            if self.progressive {
                component.coefficients = vec![0; samples];
            }
        }
        Ok(())
    }
}
