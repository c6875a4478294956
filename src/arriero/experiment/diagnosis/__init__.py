"""Why a command does not run: a controlled series of trials, in as few launches as can be."""
