//! Constants of `virtio-bindings`, which has all of them as 32-bit numbers, in the widths of their
//! fields.

/// A constant of 8 bits. For the values of constants: a number that does not fit is an error of the
/// compiler.
pub(crate) const fn byte(number: u32) -> u8 {
    match number.to_le_bytes() {
        [byte, 0, 0, 0] => byte,
        _ => panic!("the constant has more than 8 bits"),
    }
}
