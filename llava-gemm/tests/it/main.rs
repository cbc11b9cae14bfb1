//! Products and attention against the scalar kernel bit for bit, and against f64 products of the dequantised weights and f64 attention.

#![expect(clippy::unwrap_used, reason = "helper functions of tests are tests too")]

mod attention;
mod experts;
mod floats;
mod products;
mod world;
