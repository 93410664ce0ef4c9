//! The trees of an image, each implemented once over [`crate::txn::Transaction`].
