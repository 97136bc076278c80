"""What a row of a table is: types of columns, and the structure that they are parts of."""
