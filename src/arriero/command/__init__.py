"""A llama-server command line as a value: parse, look up, change one thing, print it back."""

from arriero.command.command import Command as Command
from arriero.command.command import ModelSource as ModelSource
from arriero.command.command import parse_command as parse_command
from arriero.command.flags import Flag as Flag
from arriero.command.flags import FlagTable as FlagTable
from arriero.command.flags import builtin_flags as builtin_flags
from arriero.command.flags import decode_flags as decode_flags
from arriero.command.flags import encode_flags as encode_flags
from arriero.command.flags import parse_help as parse_help
from arriero.command.line import Item as Item
from arriero.command.shell import join_words as join_words
from arriero.command.shell import split_text as split_text
