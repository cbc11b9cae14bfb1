//! Products and attention against the scalar kernel bit for bit, and against f64 products of the dequantised weights and f64 attention.

mod attention;
mod products;
mod world;
