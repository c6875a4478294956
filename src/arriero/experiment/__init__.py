"""Many trials with one aim: a diagnosis, a reproduction of a gotcha."""
