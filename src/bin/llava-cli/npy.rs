//! NumPy's file format, version 1.0 (numpy.lib.format).

/// Encodes a float32 array of shape `[rows, width]`, row-major.
pub fn encode(rows: usize, width: usize, values: &[f32]) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    // magic, two bytes of length and the header, which ends in a line end, together fill blocks of 64
    let used = MAGIC.len() + 2 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', used.next_multiple_of(64) - used));
    header.push('\n');

    let mut out = Vec::with_capacity(MAGIC.len() + 2 + header.len() + values.len() * 4);
    out.extend_from_slice(MAGIC);
    // two numbers of at most 20 digits: the header is 128 bytes long at most
    out.extend_from_slice(&u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(header.as_bytes());
    out.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    out
}

#[cfg(test)]
mod tests {
    use super::encode;

    proptest::proptest! {
        #[test]
        fn header_and_values_come_back(rows in 1_usize..40, width in 1_usize..40, seed: u32) {
            let values: Vec<f32> = (0..rows * width).map(|i| (i as f32).sin() * seed as f32).collect();
            let bytes = encode(rows, width, &values);
            proptest::prop_assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
            let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
            proptest::prop_assert_eq!((10 + length) % 64, 0);
            let header = std::str::from_utf8(&bytes[10..10 + length]).unwrap();
            let shape = format!("'shape': ({rows}, {width}), }}");
            proptest::prop_assert!(header.contains(&shape) && header.contains("'descr': '<f4'") && header.ends_with('\n'));
            let (floats, rest) = bytes[10 + length..].as_chunks::<4>();
            proptest::prop_assert!(rest.is_empty());
            let back: Vec<f32> = floats.iter().map(|b| f32::from_le_bytes(*b)).collect();
            proptest::prop_assert_eq!(back, values);
        }
    }
}
