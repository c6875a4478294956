"""What a file that holds commands says otherwise than its writer meant."""
