//! Mixtures of experts against one plain product for each expert.

use llava_gemm::{Experts, Kernel, Layout, Multiply, WeightType};
use proptest::prelude::*;

use crate::world::{Dice, bits, kernels, multiply, product, run, weave, weights};

struct Case {
    weight: WeightType,
    columns: usize,
    k: usize,
    tokens: usize,
    slots: usize,
    /// Whether all slots of a token see the same row.
    shared: bool,
    /// Weights of each expert, as the file has them.
    experts: Vec<Vec<u8>>,
    /// `slots` for each token, with one number between them that is nobody's.
    ids: Vec<i32>,
    input: Vec<f32>,
}

impl Case {
    fn new(weight: WeightType, count: usize, tokens: usize, slots: usize, shared: bool, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let (columns, k) = (72, if weight.is_float() { 77 } else { 2 * weight.unit() });
        let experts = (0..count).map(|_| weights(weight, columns, k, &mut dice)).collect();
        let ids = (0..tokens)
            .flat_map(|_| {
                // as routers do: different experts for one token
                let first = dice.next() as usize % count;
                (0..slots).map(move |slot| ((first + slot) % count) as i32).chain([i32::MIN])
            })
            .collect();
        let rows = tokens * if shared { 1 } else { slots };
        let input = (0..rows * k).map(|_| dice.normal()).collect();
        Self { weight, columns, k, tokens, slots, shared, experts, ids, input }
    }

    fn run(&self, kernel: Kernel, threads: usize, layout: Layout) -> Option<Vec<f32>> {
        let all: Vec<u8> = match layout {
            Layout::Rows => self.experts.concat(),
            Layout::Woven8 => self.experts.iter().flat_map(|one| weave(self.weight, one, self.columns)).collect(),
        };
        let mut output = vec![f32::from_bits(0x7fc0_dead); self.tokens * self.slots * self.columns];
        let (row, out) = (4 * self.k, 4 * self.columns);
        let dense = product((self.weight, layout), &all, &self.input, &mut output, (self.tokens, self.columns, self.k));
        let job = Multiply {
            input_stride: if self.shared { row } else { row * self.slots },
            output_stride: out * self.slots,
            experts: Some(Experts {
                count: self.experts.len(),
                weight_stride: self.experts[0].len(),
                slots: self.slots,
                ids: self.ids.as_ptr(),
                ids_stride: 4 * (self.slots + 1),
                input_stride: if self.shared { 0 } else { row },
                output_stride: out,
            }),
            ..dense
        };
        assert!(job.fits());
        // SAFETY: the vectors live through the call and have the sizes that the product names.
        unsafe { run(job, kernel, threads) }.then_some(output)
    }

    /// Row by row, each with its own expert.
    fn plain(&self, kernel: Kernel) -> Vec<f32> {
        let mut out = Vec::new();
        for row in 0..self.tokens * self.slots {
            let (token, slot) = (row / self.slots, row % self.slots);
            let at = if self.shared { token } else { row };
            let expert = self.ids[token * (self.slots + 1) + slot] as usize;
            let input = &self.input[at * self.k..][..self.k];
            let weights = (self.weight, Layout::Rows);
            out.extend(multiply(kernel, 1, weights, &self.experts[expert], input, (1, self.columns, self.k)).unwrap());
        }
        out
    }
}

#[test]
fn every_row_has_the_bits_that_its_expert_gives_it() {
    for weight in WeightType::QUANTISED.into_iter().chain(WeightType::FLOATS) {
        for shared in [true, false] {
            let case = Case::new(weight, 5, 17, 2, shared, 41);
            let wanted = bits(&case.plain(Kernel::Scalar));
            for kernel in kernels() {
                for threads in [1, 2, 4] {
                    let got = case.run(kernel, threads, Layout::Rows).unwrap();
                    assert!(bits(&got) == wanted, "{weight:?} {kernel} with {threads} threads");
                }
                if Layout::Woven8.holds(weight) {
                    let got = case.run(kernel, 2, Layout::Woven8).unwrap();
                    assert!(bits(&got) == wanted, "{weight:?} {kernel}, woven");
                }
            }
        }
    }
}

#[test]
fn an_expert_that_does_not_exist_is_refused_by_all_threads() {
    for id in [-1, 5, i32::MAX, i32::MIN] {
        for threads in [1, 3] {
            let mut case = Case::new(WeightType::Q8_0, 5, 9, 2, true, 42);
            case.ids[3 * 5 + 1] = id;
            assert!(case.run(Kernel::Scalar, threads, Layout::Rows).is_none(), "{id}");
        }
    }
}

#[test]
fn a_nan_reaches_only_the_rows_of_its_token() {
    let clean = Case::new(WeightType::Q4K, 4, 11, 3, true, 43);
    let mut case = Case::new(WeightType::Q4K, 4, 11, 3, true, 43);
    case.input[6 * case.k + 7] = f32::NAN;
    for kernel in kernels() {
        let (got, plain) = (case.run(kernel, 2, Layout::Rows).unwrap(), clean.run(kernel, 2, Layout::Rows).unwrap());
        for (row, (got, plain)) in got.chunks(case.columns).zip(plain.chunks(case.columns)).enumerate() {
            if row / 3 == 6 {
                assert!(got.iter().all(|value| value.is_nan()), "{kernel}, row {row}");
            } else {
                assert!(bits(got) == bits(plain), "{kernel}, row {row}");
            }
        }
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let case = Case::new(WeightType::Q8_0, 3, 4, 2, false, 44);
    let all = case.experts.concat();
    let mut output = vec![0.0; 8 * case.columns];
    let (row, out) = (4 * case.k, 4 * case.columns);
    let experts = Experts {
        count: 3,
        weight_stride: case.experts[0].len(),
        slots: 2,
        ids: case.ids.as_ptr(),
        ids_stride: 12,
        input_stride: row,
        output_stride: out,
    };
    let dense = product((case.weight, Layout::Rows), &all, &case.input, &mut output, (4, case.columns, case.k));
    let job = |experts| Multiply { input_stride: 2 * row, output_stride: 2 * out, experts: Some(experts), ..dense };
    assert!(job(experts).fits());
    let bad = [
        Experts { count: 0, ..experts },
        Experts { count: usize::MAX, ..experts },
        Experts { slots: 0, ..experts },
        Experts { slots: 3, ..experts },
        Experts { slots: usize::MAX, ..experts },
        Experts { ids_stride: 4, ..experts },
        Experts { ids_stride: 13, ..experts },
        Experts { input_stride: row - 4, ..experts },
        Experts { input_stride: 2 * row, ..experts },
        Experts { output_stride: out - 4, ..experts },
        Experts { output_stride: out + 2, ..experts },
    ];
    for experts in bad {
        assert!(!job(experts).fits(), "{experts:?}");
    }
}

proptest! {
    #![proptest_config(crate::world::fixed(40))]

    #[test]
    fn any_shape(
        weight in prop::sample::select(WeightType::QUANTISED.as_slice()),
        count in 1_usize..9,
        tokens in 1_usize..40,
        slots in 1_usize..4,
        shared: bool,
        threads in 1_usize..4,
        seed in 1_u64..u64::MAX,
    ) {
        let case = Case::new(weight, count, tokens, slots.min(count), shared, seed);
        let wanted = bits(&case.plain(Kernel::Scalar));
        for kernel in kernels().filter(|kernel| *kernel != Kernel::Scalar) {
            prop_assert!(bits(&case.run(kernel, threads, Layout::Rows).unwrap()) == wanted, "{kernel}");
        }
    }
}
