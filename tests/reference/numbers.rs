//! Matrices of f64 and the handful of operations a vision transformer is made of.

/// Row-major `[rows, width]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    width: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// `data` cut into rows of `width`.
    pub fn new(width: usize, data: Vec<f64>) -> Matrix {
        assert!(width > 0 && data.len().is_multiple_of(width), "{} numbers in rows of {width}", data.len());
        Matrix { width, data }
    }

    /// One row after the other, all of one width.
    pub fn from_rows<'a>(rows: impl IntoIterator<Item = &'a [f64]>) -> Matrix {
        let mut rows = rows.into_iter();
        let first = rows.next().expect("at least one row");
        let mut data = first.to_vec();
        for row in rows {
            assert_eq!(row.len(), first.len(), "rows of different widths");
            data.extend_from_slice(row);
        }
        Matrix::new(first.len(), data)
    }

    /// Numbers in a row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.data.len() / self.width
    }

    /// One row.
    pub fn row(&self, index: usize) -> &[f64] {
        &self.data[index * self.width..][..self.width]
    }

    /// All rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.data.chunks_exact(self.width)
    }

    /// Each number through `f`.
    pub fn map(&self, f: impl Fn(f64) -> f64) -> Matrix {
        Matrix::new(self.width, self.data.iter().map(|&v| f(v)).collect())
    }

    /// Each row through `f`; all results have one width.
    pub fn map_rows(&self, f: impl Fn(&[f64]) -> Vec<f64>) -> Matrix {
        let rows: Vec<Vec<f64>> = self.rows().map(f).collect();
        Matrix::from_rows(rows.iter().map(Vec::as_slice))
    }

    /// Number by number with another matrix of the same extents.
    pub fn zip(&self, other: &Matrix, f: impl Fn(f64, f64) -> f64) -> Matrix {
        assert_eq!((self.width, self.data.len()), (other.width, other.data.len()));
        Matrix::new(self.width, self.data.iter().zip(&other.data).map(|(&a, &b)| f(a, b)).collect())
    }

    /// The sum of two matrices.
    pub fn plus(&self, other: &Matrix) -> Matrix {
        self.zip(other, |a, b| a + b)
    }

    /// Some rows, in the order given.
    pub fn pick(&self, indices: impl IntoIterator<Item = usize>) -> Matrix {
        let indices: Vec<usize> = indices.into_iter().collect();
        Matrix::from_rows(indices.iter().map(|&i| self.row(i)))
    }
}

/// `x W^T + b`.
#[derive(Debug, Clone)]
pub struct Linear {
    /// `[out, in]`, as PyTorch has it.
    pub weight: Matrix,
    /// `out` numbers, if there are any.
    pub bias: Option<Vec<f64>>,
}

impl Linear {
    pub fn apply(&self, x: &Matrix) -> Matrix {
        assert_eq!(x.width(), self.weight.width());
        x.map_rows(|row| {
            let product = self.weight.rows().map(|w| dot(w, row));
            match &self.bias {
                Some(bias) => product.zip(bias).map(|(v, b)| v + b).collect(),
                None => product.collect(),
            }
        })
    }
}

/// Layer normalisation (Ba, Kiros, Hinton 2016) with PyTorch's biased variance.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    pub weight: Vec<f64>,
    pub bias: Vec<f64>,
    pub epsilon: f64,
}

impl LayerNorm {
    pub fn apply(&self, x: &Matrix) -> Matrix {
        assert_eq!(x.width(), self.weight.len());
        x.map_rows(|row| {
            let n = row.len() as f64;
            let mean = row.iter().sum::<f64>() / n;
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
            let scale = 1.0 / (variance + self.epsilon).sqrt();
            row.iter().zip(&self.weight).zip(&self.bias).map(|((v, w), b)| (v - mean) * scale * w + b).collect()
        })
    }
}

/// Self-attention of all rows to all rows: `softmax(q k^T / sqrt(d)) v` per head, heads side by side.
pub fn attention(q: &Matrix, k: &Matrix, v: &Matrix, heads: usize) -> Matrix {
    let head_dim = q.width() / heads;
    let scale = 1.0 / (head_dim as f64).sqrt();
    let mut data = Vec::with_capacity(q.len() * q.width());
    for query in q.rows() {
        for head in 0..heads {
            let span = head * head_dim..(head + 1) * head_dim;
            let scores: Vec<f64> = k.rows().map(|key| dot(&query[span.clone()], &key[span.clone()]) * scale).collect();
            let weights = softmax(&scores);
            for column in span {
                data.push(weights.iter().zip(v.rows()).map(|(w, value)| w * value[column]).sum());
            }
        }
    }
    Matrix::new(q.width(), data)
}

pub fn softmax(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let powers: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|p| p / sum).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

/// GELU (Hendrycks, Gimpel 2016), exactly: what PyTorch's `nn.GELU()` computes.
pub fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2))
}

/// The approximation by `tanh` from the same paper: what ggml's `GELU` computes.
pub fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
    0.5 * x * (1.0 + inner.tanh())
}

/// `x sigmoid(1.702 x)`, as OpenAI's CLIP was trained.
pub fn quick_gelu(x: f64) -> f64 {
    x / (1.0 + (-1.702 * x).exp())
}

/// `x sigmoid(x)`.
pub fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// The error function by the series `2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (2n+1)!!`, whose terms all have one sign.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 {
        return x.signum();
    }
    let (mut term, mut sum, mut n) = (x, x, 0.0);
    while term.abs() > sum.abs() * 1e-17 {
        n += 1.0;
        term *= 2.0 * x * x / (2.0 * n + 1.0);
        sum += term;
    }
    std::f64::consts::FRAC_2_SQRT_PI * (-x * x).exp() * sum
}
