//! Which shapes an array may have, whatever its parameter takes.

/// The most axes of an array that comes in, in every protocol. numpy's own bound for long; a worker needs one more for the
/// batch. It also bounds the recursion in the readers of nested lists.
pub(crate) const AXES: usize = 32;
/// The most lists that an array without elements may be. An array with elements has bytes for each of its lists; this
/// one has none, and a hundred bytes of header could ask for lists without end.
const EMPTY_LISTS: u64 = 1 << 20;

/// Whether an array of this shape, however few its bytes, can be computed with and written as lists.
pub(crate) fn check_shape(shape: &[u64]) -> Result<(), String> {
    if shape.len() > AXES {
        return Err(format!("expected at most {AXES} axes, got {}", shape.len()));
    }
    // No list has anything in it after the first axis of no length.
    let Some(end) = shape.iter().position(|&axis| axis == 0) else { return Ok(()) };
    let lists = shape[..end].iter().try_fold((1u64, 1u64), |(outer, all), &axis| {
        let inner = outer.checked_mul(axis)?;
        Some((inner, all.checked_add(inner)?))
    });
    if lists.is_none_or(|(_, lists)| lists > EMPTY_LISTS) {
        return Err(format!("expected an array without elements to be at most {EMPTY_LISTS} empty lists, got more"));
    }
    Ok(())
}
