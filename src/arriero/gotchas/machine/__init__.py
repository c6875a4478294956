"""Features that the machine itself lacks, whatever the command says."""
