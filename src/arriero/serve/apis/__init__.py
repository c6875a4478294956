"""What requests and answers mean: which are streamed, which can be continued, and how."""
