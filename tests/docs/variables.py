"""Which environment variables the package reads, found in its source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import arriero

ROOT = Path(arriero.__file__).parent
ENVIRONS = frozenset({"environ", "exec_environ"})
"""What a mapping of environment variables is called, here and in ``os``."""
OF_FLAGS = "LLAMA_ARG_*"
"""The variable of a flag, whichever: the engine's own table names them."""


@dataclass(frozen=True)
class Read:
    """One place where a variable is read, and which: None where the source does not tell."""

    where: str
    name: str | None


@cache
def reads() -> tuple[Read, ...]:
    """Every read of an environment variable."""
    found: list[Read] = []
    for path, tree in sources().items():
        parents = _parents(tree)
        for node in ast.walk(tree):
            if (key := _key(node)) is not None:
                where = f"{path.relative_to(ROOT)}:{key.lineno}: {ast.unparse(node)}"
                found += [Read(where, name) for name in _values(key, parents)]
    return tuple(found)


@cache
def sources() -> Mapping[Path, ast.Module]:
    paths = sorted(ROOT.rglob("*.py"))
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def _key(node: ast.AST) -> ast.expr | None:
    """What stands for a variable's name, if this is a read of one."""
    match node:
        case ast.Call(func=ast.Attribute(value=mapping, attr="get"), args=[key, *_]):
            return key if _is_environ(mapping) else None
        case ast.Subscript(value=mapping, slice=key, ctx=ast.Load()):
            return key if _is_environ(mapping) else None
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]):
            return key if _is_environ(mapping) else None
        case ast.Call(func=ast.Name(id="getenv") | ast.Attribute(attr="getenv"), args=[key, *_]):
            return key
        case ast.keyword(arg="envvar", value=key):  # an option of click's
            return key
        case _:
            return None


def _is_environ(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ENVIRONS
        case _:
            return False


def _values(node: ast.expr, parents: Mapping[ast.AST, ast.AST]) -> Iterator[str | None]:
    """The texts that an expression can stand for."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in parts)
        case ast.Tuple(elts=nodes) | ast.List(elts=nodes) | ast.Set(elts=nodes):
            for one in nodes:
                yield from _values(one, parents)
        case ast.Attribute(attr="env" | "env_off"):
            yield OF_FLAGS
        case ast.Attribute(value=ast.Name(id="edit"), attr="flag"):
            return  # what a change of the command has just set
        case ast.Call(func=ast.Attribute(value=text, attr="upper"), args=[]):
            yield from (value and value.upper() for value in _values(text, parents))
        case ast.Call(func=ast.Attribute(attr="items"), args=[]):
            return  # what Arriero itself is to set, unless the user has
        case ast.Name(id=name):
            yield from _bound(name, node, parents)
        case _:
            yield None


def _bound(name: str, node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[str | None]:
    """The texts that a name can stand for: of a loop, a function's argument, a constant."""
    while (node := parents.get(node, node)) in parents or isinstance(node, ast.Module):
        match node:
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                for loop in node.generators:
                    if name in _names(loop.target):
                        yield from _values(loop.iter, parents)
                        return
            case ast.For(target=target, iter=values) if name in _names(target):
                yield from _values(values, parents)
                return
            case ast.FunctionDef(name=function, args=ast.arguments(args=arguments)):
                own = [a.arg for a in arguments if a.arg != "self"]
                if name in own:
                    yield from _passed(function, own.index(name), node)
                    return
            case ast.Module(body=body):
                yield from _constant(name, body, parents)
                return


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _passed(function: str, position: int, definition: ast.AST) -> Iterator[str | None]:
    """What the calls of a function give as its argument: those in its file, or else in any."""
    trees = sources().values()
    own = [tree for tree in trees if definition in ast.walk(tree)]
    calls = [*_calls(function, own)] or [*_calls(function, trees)]
    if not calls:
        yield None
    for call, parents in calls:
        if len(call.args) > position:
            yield from _values(call.args[position], parents)


def _calls(
    function: str, trees: Iterable[ast.Module]
) -> Iterator[tuple[ast.Call, Mapping[ast.AST, ast.AST]]]:
    for tree in trees:
        parents = _parents(tree)
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                    if name == function:
                        yield node, parents
                case _:
                    pass


@cache
def _parents(tree: ast.Module) -> Mapping[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def _constant(
    name: str, body: list[ast.stmt], parents: Mapping[ast.AST, ast.AST]
) -> Iterator[str | None]:
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=found)], value=value)
                | ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value)
            ) if found == name:
                yield from _values(value, parents)
                return
            case _:
                pass
    yield None
