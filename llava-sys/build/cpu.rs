//! Which CPU the result needs. ggml's kernels are compiled for one baseline, never for a guess of the build machine; the
//! names of the features it needs travel into the crate, which checks them before anything native runs.

use crate::settings::Settings;

/// A CPU baseline: its name, ggml's options for it, and what a CPU must offer (names of `std::arch` detection).
pub struct Cpu {
    pub name: String,
    pub options: Vec<(&'static str, String)>,
    pub features: Vec<&'static str>,
    /// Flags for the C and C++ compilers.
    pub flags: Vec<&'static str>,
}

/// ggml's switches on x86-64 and the name of each in `std::arch`. All are set, so that no default of ggml's slips in.
const X86_LEVEL_3: &[(&str, &str)] = &[
    ("GGML_SSE42", "sse4.2"),
    ("GGML_AVX", "avx"),
    ("GGML_AVX2", "avx2"),
    ("GGML_BMI2", "bmi2"),
    ("GGML_FMA", "fma"),
    ("GGML_F16C", "f16c"),
];
const X86_ABOVE: &[&str] = &[
    "GGML_AVX_VNNI",
    "GGML_AVX512",
    "GGML_AVX512_VBMI",
    "GGML_AVX512_VNNI",
    "GGML_AVX512_BF16",
    "GGML_AMX_TILE",
    "GGML_AMX_INT8",
    "GGML_AMX_BF16",
];

/// Macros of the C compiler that tell what `-march=native` switched on, and the name of each in `std::arch`.
const X86_MACROS: &[(&str, &str)] = &[
    ("__SSE4_2__", "sse4.2"),
    ("__AVX__", "avx"),
    ("__AVX2__", "avx2"),
    ("__BMI2__", "bmi2"),
    ("__FMA__", "fma"),
    ("__F16C__", "f16c"),
    ("__AVXVNNI__", "avxvnni"),
    ("__AVX512F__", "avx512f"),
    ("__AVX512CD__", "avx512cd"),
    ("__AVX512BW__", "avx512bw"),
    ("__AVX512DQ__", "avx512dq"),
    ("__AVX512VL__", "avx512vl"),
    ("__AVX512VBMI__", "avx512vbmi"),
    ("__AVX512VNNI__", "avx512vnni"),
    ("__AVX512BF16__", "avx512bf16"),
];
const ARM_MACROS: &[(&str, &str)] = &[
    ("__ARM_FEATURE_ATOMICS", "lse"),
    ("__ARM_FEATURE_DOTPROD", "dotprod"),
    ("__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", "fp16"),
    ("__ARM_FEATURE_MATMUL_INT8", "i8mm"),
    ("__ARM_FEATURE_SVE", "sve"),
    ("__ARM_FEATURE_SVE2", "sve2"),
];

/// The baseline of this build.
pub fn baseline(settings: &Settings) -> Result<Cpu, String> {
    let native = cfg!(feature = "native");
    if native && settings.host != settings.target {
        return Err(format!(
            "the feature `native` means the build machine's CPU, but this is a cross build from {} to {}",
            settings.host, settings.target
        ));
    }
    let arch = match settings.target_arch.as_str() {
        "x86_64" => Arch::X86,
        "aarch64" => Arch::Arm,
        _ => Arch::Other,
    };
    let mut options = vec![("GGML_NATIVE", on(native))];
    if settings.shared() {
        options.push(("GGML_CPU_ALL_VARIANTS", on(true)));
        return Ok(Cpu { name: "dynamic".to_owned(), options, features: Vec::new(), flags: Vec::new() });
    }
    if native {
        let (features, flags) = if settings.docs_rs { Default::default() } else { native_features(arch)? };
        options.push(("LLAVA_CPU_FLAGS", flags.join(" ")));
        return Ok(Cpu { name: format!("native ({})", features.join(" ")), options, features, flags });
    }
    let portable = cfg!(feature = "portable");
    let (name, features) = match (arch, portable) {
        (Arch::X86, true) => ("x86-64-v1", Vec::new()),
        (Arch::X86, false) => ("x86-64-v3", X86_LEVEL_3.iter().map(|(_, feature)| *feature).collect()),
        (Arch::Arm, true) => ("armv8-a", Vec::new()),
        (Arch::Arm, false) => ("armv8.2-a+dotprod", vec!["lse", "dotprod"]),
        (Arch::Other, _) => ("generic", Vec::new()),
    };
    match arch {
        Arch::X86 => {
            options.extend(X86_LEVEL_3.iter().map(|(option, _)| (*option, on(!portable))));
            options.extend(X86_ABOVE.iter().map(|option| (*option, on(false))));
        }
        Arch::Arm => options.push(("GGML_CPU_ARM_ARCH", name.to_owned())),
        Arch::Other => {}
    }
    Ok(Cpu { name: name.to_owned(), options, features, flags: Vec::new() })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arch {
    X86,
    Arm,
    Other,
}

fn on(value: bool) -> String {
    if value { "ON" } else { "OFF" }.to_owned()
}

/// Macro that says that AMX is compiled in, and the flags that take it out. A program needs the system's leave to use its tiles; where
/// a virtual machine gives that and has no tiles, ggml's AMX code ends with an illegal instruction, and no check before it can tell.
const AMX: (&str, [&str; 3]) = ("__AMX_TILE__", ["-mno-amx-int8", "-mno-amx-bf16", "-mno-amx-tile"]);

/// Asks the C compiler what its `native` means, so that the start-up check covers what was really compiled in: features to check
/// for, and flags to compile with.
fn native_features(arch: Arch) -> Result<(Vec<&'static str>, Vec<&'static str>), String> {
    let (flag, macros) = match arch {
        Arch::X86 => ("-march=native", X86_MACROS),
        Arch::Arm => ("-mcpu=native", ARM_MACROS),
        Arch::Other => return Ok(Default::default()),
    };
    let compiler = cc::Build::new().cargo_metadata(false).opt_level(2).get_compiler();
    if compiler.is_like_msvc() {
        return Err("the feature `native` is not supported with MSVC: use clang or a named baseline".to_owned());
    }
    let mut command = compiler.to_command();
    command.args([flag, "-dM", "-E", "-x", "c", "-"]).stdin(std::process::Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", compiler.path().display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("the C compiler does not take {flag}: {text}"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let defined: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    let features = macros.iter().filter(|(name, _)| defined.contains(name)).map(|(_, feature)| *feature).collect();
    let (amx, without) = AMX;
    Ok((features, if defined.contains(&amx) { without.to_vec() } else { Vec::new() }))
}
