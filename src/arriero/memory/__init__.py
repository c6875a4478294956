"""What a command will take, before it is started."""
