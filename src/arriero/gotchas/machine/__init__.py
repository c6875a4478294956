"""What the machine itself does not have, whatever the command says."""
