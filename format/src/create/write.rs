pub use super::plan::Plan as _P;
