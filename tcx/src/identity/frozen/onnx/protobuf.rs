//! The wire format of protobuf: the fields of one message.

/// The content of a field.
#[derive(Debug, PartialEq)]
pub(super) enum Value<'a> {
    /// A variable-length number.
    Number(u64),
    /// A text, bytes, a list of numbers, or a message.
    Bytes(&'a [u8]),
    /// A number of four or eight bytes, which nothing here needs.
    Fixed,
}

/// The fields of a message, in their order. It ends with `Err` where the message is damaged.
pub(super) struct Fields<'a>(&'a [u8]);

/// The message is not one of protobuf.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let tag = self.number()?;
        let (field, value) = match tag & 7 {
            0 => (tag >> 3, Value::Number(self.number()?)),
            1 => (tag >> 3, self.take(8).map(|_| Value::Fixed)?),
            2 => {
                let len = usize::try_from(self.number()?).map_err(|_| Malformed)?;
                (tag >> 3, Value::Bytes(self.take(len)?))
            }
            5 => (tag >> 3, self.take(4).map(|_| Value::Fixed)?),
            // Groups: ONNX has never had them.
            _ => return Err(Malformed),
        };
        if field == 0 { Err(Malformed) } else { Ok((field, value)) }
    }

    /// Seven bits a byte, the lowest first; a set highest bit says that another byte follows.
    fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sort_of_field_is_read() {
        let message = [
            [0x08, 0x96, 0x01].as_slice(),
            &[0x12, 2, b'h', b'i'],
            &[0x1d, 1, 2, 3, 4],
            &[0x21, 1, 2, 3, 4, 5, 6, 7, 8],
        ];
        let fields: Result<Vec<_>, _> =
            Fields::of(&message.concat()).map(|field| field.map(|(at, _)| at)).collect();
        assert_eq!(fields, Ok(vec![1, 2, 3, 4]));
        assert_eq!(Fields::of(message[0]).next(), Some(Ok((1, Value::Number(150)))));
        assert_eq!(Fields::of(message[1]).next(), Some(Ok((2, Value::Bytes(b"hi")))));
    }

    #[test]
    fn a_damaged_message_ends_with_an_error() {
        let whole = [0x08, 0x01];
        let cut_length = [0x12, 0x05, b'h'];
        let endless_number = [0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        let (group, no_field) = ([0x0b], [0x00, 0x01]);
        for damaged in [&cut_length[..], &endless_number, &group, &no_field] {
            let message = [&whole, damaged].concat();
            let mut fields = Fields::of(&message);
            assert_eq!(fields.next(), Some(Ok((1, Value::Number(1)))));
            assert_eq!(fields.next(), Some(Err(Malformed)));
            assert_eq!(fields.next(), None);
        }
    }
}
