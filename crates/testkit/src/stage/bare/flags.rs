use trellis_types::limits;

/// What `-z` says among beanstalkd's flags, bundled or not: `-z 10`, `-z10`, `-VVz10`.
pub(super) fn body_bytes_max(flags: &[String]) -> u32 {
    let mut words = flags.iter();
    let mut found = limits::BODY_BYTES_DEFAULT;
    while let Some(word) = words.next() {
        let Some((_, attached)) = word.split_once('z') else {
            continue;
        };
        let value = if attached.is_empty() {
            words.next().cloned()
        } else {
            Some(attached.into())
        };
        let value = value.and_then(|text| text.parse::<u64>().ok());
        found = value
            .and_then(|bytes| u32::try_from(bytes).ok())
            .unwrap_or(u32::MAX);
    }
    found.min(limits::BODY_BYTES_MAX)
}
