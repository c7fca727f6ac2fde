//! Reading messages of Protocol Buffers, by the specification of their encoding.

use crate::Result;

/// A field of a message: its number, and its value or bytes.
pub type Field<'a> = (u64, u64, &'a [u8]);

/// Takes a number of variable length.
fn varint(bytes: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("the message ends in a number")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number of more than 64 bits".into())
}

/// The fields of a message.
///
/// # Errors
/// The bytes are no message of numbers, strings and messages.
pub fn fields(mut bytes: &[u8]) -> Result<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => (key >> 3, varint(&mut bytes)?, &bytes[..0]),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?)?;
                let (contents, rest) = bytes.split_at_checked(length).ok_or("a cut field")?;
                bytes = rest;
                (key >> 3, 0, contents)
            }
            kind => return Err(format!("wire type {kind}").into()),
        };
        fields.push(field);
    }
    Ok(fields)
}

/// The number in a field.
pub fn number(fields: &[Field<'_>], field: u64) -> Option<u64> {
    fields.iter().find(|f| f.0 == field).map(|f| f.1)
}

/// The bytes in a field.
pub fn message<'a>(fields: &[Field<'a>], field: u64) -> Option<&'a [u8]> {
    fields.iter().find(|f| f.0 == field).map(|f| f.2)
}

/// The string in a field; empty if there is none.
pub fn text(fields: &[Field<'_>], field: u64) -> String {
    String::from_utf8_lossy(message(fields, field).unwrap_or_default()).into_owned()
}

/// The numbers of a repeated field that is packed.
///
/// # Errors
/// As [`fields`].
pub fn packed(fields: &[Field<'_>], field: u64) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for &(_, _, mut bytes) in fields.iter().filter(|f| f.0 == field) {
        while !bytes.is_empty() {
            numbers.push(varint(&mut bytes)?);
        }
    }
    Ok(numbers)
}
