//! `BYTES` elements: each its length in four bytes, little-endian, then itself.

use bytes::Bytes;

/// Appends one element; its length has four bytes.
pub fn push(out: &mut Vec<u8>, element: &[u8]) -> Result<(), String> {
    let length =
        u32::try_from(element.len()).map_err(|_| format!("an element of {} bytes is too long", element.len()))?;
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(element);
    Ok(())
}

/// The element at the front of `data`, which then begins behind it. `Err` is how many bytes it lacks.
pub fn next(data: &mut Bytes) -> Result<Bytes, usize> {
    let Some(&length) = data.first_chunk::<4>() else { return Err(4 - data.len()) };
    let end = 4 + u32::from_le_bytes(length) as usize;
    if data.len() < end {
        return Err(end - data.len());
    }
    Ok(data.split_to(end).split_off(4))
}

/// Checks that `data` is `count` elements and nothing else.
pub fn check(data: &[u8], count: u64) -> Result<(), String> {
    let (mut found, mut rest) = (0, data);
    while !rest.is_empty() {
        let length = rest.first_chunk::<4>().map_or(usize::MAX, |length| u32::from_le_bytes(*length) as usize);
        let Some(after) = length.checked_add(4).and_then(|end| rest.get(end..)) else {
            return Err(format!(
                "element {found} is cut off: each BYTES element is its length in 4 little-endian bytes, then itself"
            ));
        };
        (found, rest) = (found + 1, after);
    }
    if found == count { Ok(()) } else { Err(format!("its shape has {count} elements, its data {found}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn elements_survive(elements in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..20)) {
            let mut data = Vec::new();
            for element in &elements {
                push(&mut data, element).unwrap();
            }
            check(&data, elements.len() as u64).unwrap();
            let mut rest = Bytes::from(data);
            for element in &elements {
                prop_assert_eq!(&next(&mut rest).unwrap()[..], &element[..]);
            }
            prop_assert!(rest.is_empty() && next(&mut rest) == Err(4));
        }

        #[test]
        fn garbage_is_refused_or_read_to_its_end(data in prop::collection::vec(any::<u8>(), 0..64), count in 0u64..9) {
            let mut rest = Bytes::from(data.clone());
            let read = (0..count).all(|_| next(&mut rest).is_ok()) && rest.is_empty();
            prop_assert_eq!(check(&data, count).is_ok(), read);
        }
    }
}
