//! What the comparisons of kernels share: time on the CPU or on the clock, and ggml's own code and each kernel in turn, in one process.
//!
//! `LLAVA_BENCH_KERNELS` (default: the one in use) names the kernels, `LLAVA_BENCH_ROUNDS` (7) how often each is measured.
//! `LLAVA_BENCH_CLOCK=cpu` (Linux) uses one thread and counts its time on the CPU: for machines that have other work.

use std::time::{Duration, Instant};

use llava::llama::gemm::{self, Kernel};

use crate::measured::{Outcome, setting, summary};

/// On one thread, in time on the CPU.
fn on_cpu() -> bool {
    setting("LLAVA_BENCH_CLOCK", "wall") == "cpu"
}

pub fn threads() -> Option<u32> {
    on_cpu().then_some(1)
}

/// Time that `work` takes.
pub fn timed(work: impl FnOnce() -> Outcome<()>) -> Outcome<Duration> {
    if !on_cpu() {
        let start = Instant::now();
        work()?;
        return Ok(start.elapsed());
    }
    let used = || -> Outcome<u64> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
        Ok(text.split(' ').next().unwrap_or_default().parse()?)
    };
    let start = used()?;
    work()?;
    Ok(Duration::from_nanos(used()? - start))
}

/// The kernels to measure. Asked once the native library has started.
pub fn kernels() -> Outcome<Vec<Kernel>> {
    if let Some(reason) = gemm::why_not() {
        return Err(format!("nothing to compare: {reason}").into());
    }
    let names = setting("LLAVA_BENCH_KERNELS", gemm::kernel().map_or("", Kernel::name));
    let named = |kernel: &Kernel| names.split(',').any(|name| name == kernel.name());
    Ok(Kernel::ALL.into_iter().filter(named).collect())
}

/// Times `work` with ggml's own code and with each kernel, one after the other in every round, and prints ratios by round. The
/// first round counts for nothing.
pub fn compare(name: &str, kernels: &[Kernel], mut work: impl FnMut() -> Outcome<Duration>) -> Outcome<()> {
    let rounds: usize = setting("LLAVA_BENCH_ROUNDS", "7").parse()?;
    let mut own = Vec::new();
    let mut ours = vec![Vec::new(); kernels.len()];
    for round in 0..=rounds {
        gemm::set_kernel(None)?;
        let base = work()?.as_secs_f64();
        let mut times = Vec::new();
        for kernel in kernels {
            gemm::set_kernel(Some(*kernel))?;
            times.push(work()?.as_secs_f64());
        }
        if round > 0 {
            own.push(base);
            ours.iter_mut().zip(times).for_each(|(all, time)| all.push(time));
        }
    }
    let ms = |(median, least, most): (f64, f64, f64)| {
        format!("{:>9.2} ms ({:.2} to {:.2})", median * 1e3, least * 1e3, most * 1e3)
    };
    println!("{name:<22} {:<11} {}", "ggml", ms(summary(own.clone())));
    for (kernel, times) in kernels.iter().zip(ours) {
        let (median, least, most) = summary(own.iter().zip(&times).map(|(own, ours)| own / ours).collect());
        println!("{name:<22} {:<11} {}  x{median:.2} ({least:.2} to {most:.2})", kernel.name(), ms(summary(times)));
    }
    Ok(())
}
