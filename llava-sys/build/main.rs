//! Build script of llava-sys, split by question:
//!
//! | file | question |
//! |---|---|
//! | `settings.rs` | what was asked for: features, target, environment |
//! | `source.rs` | where llama.cpp lies, and whether its headers fit the committed bindings |
//! | `workplace.rs` | where the expensive part is built |
//! | `native.rs` | ggml + llama, with CMake |
//! | `cpu.rs` | which CPU the result needs |
//! | `shim.rs`, `objects.rs` | libmtmd and the shim, with `cc`, object by object |
//! | `link.rs` | what the linker is told |
//! | `bindings.rs` | bindgen, only under the feature `bindgen` |

// Here rather than in the crate: this is compiled first, and nothing is built for a pair that cannot be.
#[cfg(all(feature = "native", feature = "portable"))]
compile_error!(
    "features `native` and `portable` contradict each other: the first is for this machine, the second for any"
);
#[cfg(all(feature = "dynamic-backends", any(feature = "native", feature = "portable")))]
compile_error!(
    "`dynamic-backends` chooses a CPU variant at run time, which leaves nothing to say for `native` or `portable`"
);

#[cfg(feature = "bindgen")]
mod bindings;
mod cpu;
mod headers;
mod link;
mod native;
mod objects;
mod settings;
mod shim;
mod source;
mod workplace;

use std::process::ExitCode;

use settings::Settings;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let settings = Settings::read()?;
    settings.report();
    let cpu = cpu::baseline(&settings)?;
    link::constants(&settings, &cpu);
    if settings.docs_rs {
        // The documentation builder has no network and links nothing: the committed bindings are all it needs.
        return Ok(());
    }
    let source = source::find(&settings)?;
    match source::bindings(&settings, &source)? {
        source::Next::Build => {}
        #[cfg(feature = "bindgen")]
        source::Next::Stop => return Ok(()),
    }
    let (native, workplace) = native::provide(&settings, &source, &cpu)?;
    let archives = shim::build(&settings, &source, &workplace)?;
    link::emit(&settings, &source, &native, &archives, &cpu);
    Ok(())
}
