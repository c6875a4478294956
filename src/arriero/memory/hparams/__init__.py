"""A header's hyperparameters as llama.cpp reads them, one module for each kind of key."""

from arriero.memory.hparams.model import Hparams as Hparams
from arriero.memory.hparams.model import UnknownArchitectureError as UnknownArchitectureError
from arriero.memory.hparams.reading import lacks as lacks
from arriero.memory.hparams.reading import read_hparams as read_hparams
