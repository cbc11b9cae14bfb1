//! One scan: which blocks come in which order, and what their bits mean (T.81 annexes F and G).

use super::bits::BitReader;
use super::frame::JpegFrame;
use super::huffman::Huffman;
use super::segments::{Tables, ZIGZAG};
use super::{Fault, damaged, idct};

/// A component's part in the scan.
struct Part<'a> {
    component: usize,
    dc: Option<&'a Huffman>,
    ac: Option<&'a Huffman>,
    /// Last DC value, the prediction for the next.
    prediction: i32,
}

/// Spectral selection and successive approximation (progressive only).
#[derive(Clone, Copy)]
struct Band {
    start: usize,
    end: usize,
    /// Whether the scan adds one bit to coefficients sent before.
    refines: bool,
    low_bit: u32,
}

/// Decodes the scan whose header is `header` and whose data begin at `at`; gives the position of what follows.
pub(super) fn decode(
    bytes: &[u8],
    at: usize,
    header: &[u8],
    frame: &mut JpegFrame,
    tables: &Tables,
) -> Result<usize, Fault> {
    let (mut parts, band) = parse_header(header, frame, tables)?;
    let mut bits = BitReader::new(bytes, at);
    let alone = parts.len() == 1;
    let (columns, rows) = if alone {
        let component = &frame.components[parts[0].component];
        (component.width.div_ceil(8), component.height.div_ceil(8))
    } else {
        (frame.mcus_per_row, frame.mcus_per_column)
    };
    let mut end_of_band_run = 0;
    let mut until_restart = tables.restart_interval;
    for row in 0..rows {
        for column in 0..columns {
            if tables.restart_interval > 0 {
                if until_restart == 0 {
                    restart(&mut bits, row * columns + column)?;
                    parts.iter_mut().for_each(|part| part.prediction = 0);
                    end_of_band_run = 0;
                    until_restart = tables.restart_interval;
                }
                until_restart -= 1;
            }
            for part in &mut parts {
                let (h, v) = if alone {
                    (1, 1)
                } else {
                    (frame.components[part.component].h, frame.components[part.component].v)
                };
                for y in row * v..(row + 1) * v {
                    for x in column * h..(column + 1) * h {
                        if frame.progressive {
                            progressive_block(&mut bits, part, band, &mut end_of_band_run, frame, x, y)?;
                        } else {
                            sequential_block(&mut bits, part, frame, x, y)?;
                        }
                    }
                }
            }
        }
    }
    if band.low_bit == 0 {
        let sent = (u64::MAX >> (63 - band.end)) & (u64::MAX << band.start);
        for part in &parts {
            frame.components[part.component].finished |= sent;
        }
    }
    // Whatever stands between the last code and the next marker is padding.
    Ok(match bits.next_marker() {
        Some((_, after)) => after - 2,
        None => bytes.len(),
    })
}

fn parse_header<'a>(header: &[u8], frame: &mut JpegFrame, tables: &'a Tables) -> Result<(Vec<Part<'a>>, Band), Fault> {
    let [count, rest @ ..] = header else { return Err(damaged("a scan header is empty")) };
    let count = usize::from(*count);
    if count == 0 || count > frame.components.len() || rest.len() != count * 2 + 3 {
        return Err(damaged("a scan header's length does not fit its number of components"));
    }
    let (selectors, tail) = rest.split_at(count * 2);
    let band = if frame.progressive {
        Band {
            start: usize::from(tail[0]),
            end: usize::from(tail[1]),
            refines: tail[2] >> 4 != 0,
            low_bit: u32::from(tail[2] & 15),
        }
    } else {
        Band { start: 0, end: 63, refines: false, low_bit: 0 }
    };
    let fits = if band.start == 0 { band.end == 0 || !frame.progressive } else { band.end >= band.start && count == 1 };
    if !fits || band.end > 63 || band.low_bit > 13 {
        return Err(damaged(format!("a scan of {count} components has the band {} to {}", band.start, band.end)));
    }
    let mut parts: Vec<Part<'a>> = Vec::with_capacity(count);
    for &[id, choice] in selectors.as_chunks::<2>().0 {
        let component = frame
            .components
            .iter()
            .position(|component| component.id == id)
            .filter(|&index| parts.iter().all(|part| part.component != index))
            .ok_or_else(|| {
                damaged(format!("a scan names component {id}, which does not exist or was named already"))
            })?;
        let (dc, ac) = (usize::from(choice >> 4), usize::from(choice & 15));
        let part = Part {
            component,
            dc: tables.dc.get(dc).and_then(Option::as_ref),
            ac: tables.ac.get(ac).and_then(Option::as_ref),
            prediction: 0,
        };
        let needs_dc = band.start == 0 && !band.refines;
        let needs_ac = band.end > 0;
        if (needs_dc && part.dc.is_none()) || (needs_ac && part.ac.is_none()) {
            return Err(damaged(format!("a scan of component {id} uses a Huffman table that was never defined")));
        }
        let component = &mut frame.components[component];
        if component.quant.is_none() {
            let table = tables.quant[component.quant_index];
            component.quant = Some(table.ok_or_else(|| damaged("a quantisation table was never defined"))?);
        }
        parts.push(part);
    }
    Ok((parts, band))
}

fn restart(bits: &mut BitReader<'_>, unit: usize) -> Result<(), Fault> {
    match bits.next_marker() {
        Some((0xD0..=0xD7, after)) => {
            bits.restart_at(after);
            Ok(())
        }
        _ => Err(damaged(format!("the picture data end at unit {unit}, where a restart marker belongs"))),
    }
}

fn missing_table() -> Fault {
    damaged("a Huffman table is missing")
}

/// A whole block, transformed at once.
#[inline]
fn sequential_block(
    bits: &mut BitReader<'_>,
    part: &mut Part<'_>,
    frame: &mut JpegFrame,
    x: usize,
    y: usize,
) -> Result<(), Fault> {
    let (dc, ac) = (part.dc.ok_or_else(missing_table)?, part.ac.ok_or_else(missing_table)?);
    let component = &mut frame.components[part.component];
    let quant = component.quant.as_ref().ok_or_else(missing_table)?;
    let mut block = [0i16; 64];
    block[0] = part.next_dc(bits, dc)?.wrapping_mul(i32::from(quant[0])) as i16;
    let mut k = 1;
    while k < 64 {
        let symbol = ac.decode(bits)?;
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 {
            if run != 15 {
                break;
            }
            k += 16;
            continue;
        }
        k += run;
        let position = usize::from(*ZIGZAG.get(k).ok_or_else(overrun)?);
        block[position] = bits.signed(size)?.wrapping_mul(i32::from(quant[position])) as i16;
        k += 1;
    }
    let stride = component.stride();
    idct::transform(&block, &mut component.plane, y * 8 * stride + x * 8, stride);
    Ok(())
}

fn overrun() -> Fault {
    damaged("a block has more than 64 coefficients")
}

impl Part<'_> {
    #[inline]
    fn next_dc(&mut self, bits: &mut BitReader<'_>, dc: &Huffman) -> Result<i32, Fault> {
        let size = u32::from(dc.decode(bits)?);
        if size > 15 {
            return Err(damaged(format!("a DC difference has {size} bits")));
        }
        self.prediction = self.prediction.wrapping_add(bits.signed(size)?);
        Ok(self.prediction)
    }
}

/// One band of one block, into the coefficient store.
fn progressive_block(
    bits: &mut BitReader<'_>,
    part: &mut Part<'_>,
    band: Band,
    end_of_band_run: &mut u32,
    frame: &mut JpegFrame,
    x: usize,
    y: usize,
) -> Result<(), Fault> {
    let component = &mut frame.components[part.component];
    let at = (y * component.blocks_per_row + x) * 64;
    let block = &mut component.coefficients[at..at + 64];
    if band.start == 0 {
        if band.refines {
            block[0] |= i16::from(bits.bit()?) << band.low_bit;
        } else {
            let dc = part.dc.ok_or_else(missing_table)?;
            block[0] = (part.next_dc(bits, dc)? << band.low_bit) as i16;
        }
        return Ok(());
    }
    let ac = part.ac.ok_or_else(missing_table)?;
    if band.refines {
        refine_ac(bits, ac, band, end_of_band_run, block)
    } else {
        first_ac(bits, ac, band, end_of_band_run, block)
    }
}

fn first_ac(
    bits: &mut BitReader<'_>,
    ac: &Huffman,
    band: Band,
    end_of_band_run: &mut u32,
    block: &mut [i16],
) -> Result<(), Fault> {
    if *end_of_band_run > 0 {
        *end_of_band_run -= 1;
        return Ok(());
    }
    let mut k = band.start;
    while k <= band.end {
        let symbol = ac.decode(bits)?;
        let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
        if size == 0 {
            if run < 15 {
                *end_of_band_run = (1 << run) - 1 + bits.take(run)?;
                return Ok(());
            }
            k += 16;
            continue;
        }
        k += run as usize;
        let position = *ZIGZAG.get(k).ok_or_else(overrun)?;
        block[usize::from(position)] = (bits.signed(size)? << band.low_bit) as i16;
        k += 1;
    }
    Ok(())
}

/// T.81 section G.1.2.3: new coefficients of size 1 between correction bits for those that exist.
fn refine_ac(
    bits: &mut BitReader<'_>,
    ac: &Huffman,
    band: Band,
    end_of_band_run: &mut u32,
    block: &mut [i16],
) -> Result<(), Fault> {
    let step = 1i16 << band.low_bit;
    let mut k = band.start;
    while *end_of_band_run == 0 && k <= band.end {
        let symbol = ac.decode(bits)?;
        let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
        let mut fresh = 0;
        match size {
            0 if run < 15 => {
                *end_of_band_run = (1 << run) + bits.take(run)?;
                break;
            }
            0 => {}
            1 => fresh = if bits.bit()? { step } else { -step },
            _ => return Err(damaged("a refinement scan holds a coefficient of more than 1 bit")),
        }
        while k <= band.end {
            let value = &mut block[usize::from(ZIGZAG[k])];
            k += 1;
            if *value != 0 {
                correct(bits, value, step)?;
            } else if run == 0 {
                *value = fresh;
                break;
            } else {
                run -= 1;
            }
        }
    }
    if *end_of_band_run > 0 {
        for &position in &ZIGZAG[k..=band.end] {
            let value = &mut block[usize::from(position)];
            if *value != 0 {
                correct(bits, value, step)?;
            }
        }
        *end_of_band_run -= 1;
    }
    Ok(())
}

#[inline]
fn correct(bits: &mut BitReader<'_>, value: &mut i16, step: i16) -> Result<(), Fault> {
    if bits.bit()? && *value & step == 0 {
        *value = value.wrapping_add(if *value > 0 { step } else { -step });
    }
    Ok(())
}

/// After the last scan: progressive coefficients become samples.
pub(super) fn finish(frame: &mut JpegFrame) {
    if !frame.progressive {
        return;
    }
    for component in &mut frame.components {
        let quant = component.quant.unwrap_or([1; 64]);
        let stride = component.stride();
        let (blocks, _) = component.coefficients.as_chunks::<64>();
        for row in 0..component.height.div_ceil(8) {
            for column in 0..component.width.div_ceil(8) {
                let stored = &blocks[row * component.blocks_per_row + column];
                let block: [i16; 64] = std::array::from_fn(|k| stored[k].wrapping_mul(quant[k] as i16));
                idct::transform(&block, &mut component.plane, row * 8 * stride + column * 8, stride);
            }
        }
        component.coefficients = Vec::new();
    }
}
