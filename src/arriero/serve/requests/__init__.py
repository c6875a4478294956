"""The life of a request: it waits, is sent, is answered; it is sent again or continued."""
