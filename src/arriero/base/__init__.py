"""What every room may use: the words of the contract, sizes, errors and redaction."""
