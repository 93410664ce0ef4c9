//! Where everything lives; the only place that converts between numbers.
