//! Writes the generated model pairs that the tests use into a folder, for trying other programs on them:
//! `cargo run --example tiny_models -- DIR`

#[path = "../tests/models/mod.rs"]
mod models;

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: tiny_models DIR")?;
    for family in models::Family::ALL {
        let home = Path::new(&dir).join(family.projector_type());
        std::fs::create_dir_all(&home)?;
        let pair = models::pair(&home, family, 7)?;
        println!("{} {} {}", family.architecture(), pair.text.display(), pair.projector.display());
    }
    Ok(())
}
