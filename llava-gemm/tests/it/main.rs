//! Products against the scalar kernel bit for bit, and against f64 products of the dequantised weights.

mod products;
mod world;
