use std::{
    hash::{DefaultHasher, Hasher},
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use trellis_node::model::ModelOrigin;

/// An origin that worlds share until one of them changes it: most steps change one of them or none.
#[derive(Clone)]
pub(crate) struct Shared {
    origin: Arc<ModelOrigin>,
    mark: OnceLock<u64>,
}

impl Shared {
    pub(crate) fn new(origin: ModelOrigin) -> Self {
        Self {
            origin: Arc::new(origin),
            mark: OnceLock::new(),
        }
    }

    /// Its fingerprint.
    pub(crate) fn mark(&self) -> u64 {
        *self.mark.get_or_init(|| {
            let mut hash = DefaultHasher::new();
            self.origin.fingerprint(&mut hash);
            hash.finish()
        })
    }
}

impl Deref for Shared {
    type Target = ModelOrigin;

    fn deref(&self) -> &ModelOrigin {
        &self.origin
    }
}

impl DerefMut for Shared {
    fn deref_mut(&mut self) -> &mut ModelOrigin {
        self.mark.take();
        Arc::make_mut(&mut self.origin)
    }
}
