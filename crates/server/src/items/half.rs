//! IEEE half precision, which Rust's stable numbers lack.

/// The half nearest to a number, ties to even; infinite when it is too large.
pub fn from_f64(value: f64) -> u16 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let size = value.abs();
    if value.is_nan() {
        return sign | 0x7e00;
    }
    // Halfway between the largest half and what would be the next.
    if size >= 65_520.0 {
        return sign | 0x7c00;
    }
    // 2^-14, the smallest normal half; below it halves are multiples of 2^-24.
    if size < 6.103_515_625e-5 {
        return sign | (size * 16_777_216.0).round_ties_even() as u16;
    }
    let exponent = ((size.to_bits() >> 52) as i32 & 0x7ff) - 1023;
    let fraction = (size * f64::from(10 - exponent).exp2()).round_ties_even() as u16;
    // A fraction that was rounded up to 2048 carries into the exponent, as it should.
    sign | (((exponent + 14) as u16) << 10).wrapping_add(fraction)
}

/// The number that a half stands for.
pub fn to_f32(bits: u16) -> f32 {
    let fraction = f32::from(bits & 0x3ff);
    let size = match bits >> 10 & 0x1f {
        0 => fraction / 16_777_216.0,
        0x1f if fraction == 0.0 => f32::INFINITY,
        0x1f => f32::NAN,
        exponent => (1024.0 + fraction) * (f32::from(exponent) - 25.0).exp2(),
    };
    if bits & 0x8000 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives() {
        for bits in 0..=u16::MAX {
            let number = to_f32(bits);
            if number.is_nan() {
                assert!(to_f32(from_f64(f64::from(number))).is_nan());
            } else {
                assert_eq!(from_f64(f64::from(number)), bits, "{bits:#x}");
            }
        }
    }

    #[test]
    fn rounding_goes_to_the_nearest_and_ties_to_even() {
        for (number, bits) in [(1.0, 0x3c00), (0.1, 0x2e66), (65_504.0, 0x7bff), (65_519.9, 0x7bff), (65_520.0, 0x7c00)]
        {
            assert_eq!(from_f64(number), bits, "{number}");
        }
        // Between 2048 and 2050 lies 2049, a tie.
        assert_eq!(to_f32(from_f64(2049.0)).to_bits(), 2048f32.to_bits());
        assert_eq!(to_f32(from_f64(2051.0)).to_bits(), 2052f32.to_bits());
        assert_eq!(from_f64(f64::from_bits(1)), 0);
    }
}
