"""A llama-server that does no work and dies when it is told to."""

from tests.serve.fake_engine.answers import text_of, words_of
from tests.serve.fake_engine.home import Home, Order

__all__ = ["Home", "Order", "text_of", "words_of"]
