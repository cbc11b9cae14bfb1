//! Metadata values: the thirteen types of the format, kept exactly as stored.

use std::fmt;

/// A string as stored: any bytes. The format asks for UTF-8, token lists of real models do not always obey.
pub type Bytes = Vec<u8>;

/// One metadata value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Type 0.
    U8(u8),
    /// Type 1.
    I8(i8),
    /// Type 2.
    U16(u16),
    /// Type 3.
    I16(i16),
    /// Type 4.
    U32(u32),
    /// Type 5.
    I32(i32),
    /// Type 6.
    F32(f32),
    /// Type 7; stored as one byte, 0 or 1.
    Bool(bool),
    /// Type 8.
    String(Bytes),
    /// Type 9.
    Array(Array),
    /// Type 10.
    U64(u64),
    /// Type 11.
    I64(i64),
    /// Type 12.
    F64(f64),
}

/// An array value; an empty one still has an element type.
///
/// The format's text allows arrays of arrays; llama.cpp refuses them, so there are none here.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each variant is the array of the `Value` variant of the same name")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(Vec<Bytes>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

pub(super) const ARRAY_ID: u32 = 9;

macro_rules! value_types {
    ($($variant:ident $ty:ty, $id:literal, $name:literal;)*) => {
        impl Value {
            /// The type's number in a file.
            pub(super) fn type_id(&self) -> u32 {
                match self {
                    $(Value::$variant(_) => $id,)*
                    Value::Array(_) => ARRAY_ID,
                }
            }

            /// The type's short name, for example `u32` or `[f32; 3]`.
            #[must_use]
            pub fn type_name(&self) -> String {
                match self {
                    $(Value::$variant(_) => $name.to_owned(),)*
                    Value::Array(a) => format!("[{}; {}]", a.element_name(), a.len()),
                }
            }
        }

        impl Array {
            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                match self {
                    $(Array::$variant(v) => v.len(),)*
                }
            }

            /// Short name of the element type.
            #[must_use]
            pub fn element_name(&self) -> &'static str {
                match self {
                    $(Array::$variant(_) => $name,)*
                }
            }

            /// The element type's number in a file.
            pub(super) fn element_id(&self) -> u32 {
                match self {
                    $(Array::$variant(_) => $id,)*
                }
            }
        }

        $(
            impl From<$ty> for Value {
                fn from(v: $ty) -> Value {
                    Value::$variant(v)
                }
            }

            impl FromValue<'_> for $ty
            where
                $ty: Clone,
            {
                const WANTED: &'static str = $name;

                fn from_value(value: &Value) -> Option<$ty> {
                    match value {
                        Value::$variant(v) => Some(v.clone()),
                        _ => None,
                    }
                }
            }

            impl From<Vec<$ty>> for Array {
                fn from(v: Vec<$ty>) -> Array {
                    Array::$variant(v)
                }
            }

            impl<'a> FromValue<'a> for &'a [$ty] {
                const WANTED: &'static str = concat!("array of ", $name);

                fn from_value(value: &'a Value) -> Option<&'a [$ty]> {
                    match value {
                        Value::Array(Array::$variant(v)) => Some(v),
                        _ => None,
                    }
                }
            }
        )*
    };
}

value_types! {
    U8 u8, 0, "u8";
    I8 i8, 1, "i8";
    U16 u16, 2, "u16";
    I16 i16, 3, "i16";
    U32 u32, 4, "u32";
    I32 i32, 5, "i32";
    F32 f32, 6, "f32";
    Bool bool, 7, "bool";
    String Bytes, 8, "string";
    U64 u64, 10, "u64";
    I64 i64, 11, "i64";
    F64 f64, 12, "f64";
}

impl Array {
    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A Rust type that a [`Value`] of exactly one GGUF type can be read as; see `GgufFile::get`.
///
/// Nothing is converted: the native loaders end the process on a `u32` key that holds an `i32`, so `get` is as strict.
pub trait FromValue<'a>: Sized {
    /// What the value has to be, for error texts.
    const WANTED: &'static str;

    /// The value as `Self`, or `None` if it has another type.
    fn from_value(value: &'a Value) -> Option<Self>;
}

impl<'a> FromValue<'a> for &'a str {
    const WANTED: &'static str = "UTF-8 string";

    fn from_value(value: &'a Value) -> Option<&'a str> {
        match value {
            Value::String(v) => std::str::from_utf8(v).ok(),
            _ => None,
        }
    }
}

impl<'a> FromValue<'a> for &'a Array {
    const WANTED: &'static str = "array";

    fn from_value(value: &'a Value) -> Option<&'a Array> {
        match value {
            Value::Array(v) => Some(v),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(v: &str) -> Value {
        Value::String(v.as_bytes().to_vec())
    }
}

impl From<String> for Value {
    fn from(v: String) -> Value {
        Value::String(v.into_bytes())
    }
}

impl From<Array> for Value {
    fn from(v: Array) -> Value {
        Value::Array(v)
    }
}

impl From<&[&str]> for Array {
    fn from(v: &[&str]) -> Array {
        Array::String(v.iter().map(|s| s.as_bytes().to_vec()).collect())
    }
}

/// Shortens to one line of at most about 60 characters, for messages and listings.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::U8(v) => write!(f, "{v}"),
            Value::I8(v) => write!(f, "{v}"),
            Value::U16(v) => write!(f, "{v}"),
            Value::I16(v) => write!(f, "{v}"),
            Value::U32(v) => write!(f, "{v}"),
            Value::I32(v) => write!(f, "{v}"),
            Value::F32(v) => write!(f, "{v}"),
            Value::Bool(v) => write!(f, "{v}"),
            Value::U64(v) => write!(f, "{v}"),
            Value::I64(v) => write!(f, "{v}"),
            Value::F64(v) => write!(f, "{v}"),
            Value::String(v) => {
                let text = String::from_utf8_lossy(&v[..v.len().min(256)]);
                let cut: String = text.chars().take(60).collect();
                let rest = if cut.len() < v.len() { "..." } else { "" };
                write!(f, "\"{}\"{rest}", cut.escape_debug())
            }
            Value::Array(a) => write!(f, "{} elements of {}", a.len(), a.element_name()),
        }
    }
}
