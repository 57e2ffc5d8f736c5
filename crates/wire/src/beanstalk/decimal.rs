use bytes::BytesMut;

/// Appends `value` in decimal digits. Straight into the buffer: `format!` would allocate, and
/// every reply passes here.
pub(crate) fn put_decimal(out: &mut BytesMut, mut value: u64) {
    // 2^64-1 has 20 digits.
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}
