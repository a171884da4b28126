"""The program: its verbs, and how it says that something went wrong."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from gradformer.cli.data import data_app
from gradformer.cli.doctor import doctor
from gradformer.cli.embed import embed
from gradformer.cli.evaluate import evaluate
from gradformer.cli.explain import explain
from gradformer.cli.export import export
from gradformer.cli.models import models
from gradformer.cli.options import ungrouped
from gradformer.cli.predict import predict
from gradformer.cli.report import report
from gradformer.cli.reproduce import reproduce
from gradformer.cli.search import search
from gradformer.cli.tables import as_it_is
from gradformer.cli.train import train
from gradformer.errors import GradformerError, GradformerWarning, InputError, nearest, spent
from gradformer.model.own import VARIABLE

TO_MEND, WRONG_USAGE, BUG, NOBODY_READS = 1, 2, 70, 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
ERROR = Text.assemble(("error:", "bold red"), " ")
WARNING = Text.assemble(("warning:", "yellow"), " ")
_UsageError: Any = typer.BadParameter.__base__  # it has no public name


class _Plain:
    """Help shows no value behind a flag, since a flag takes none."""

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return parameters


class Verb(_Plain, TyperCommand):
    """A command."""


class Verbs(_Plain, TyperGroup):
    """Commands under one name."""


class Program(Verbs):
    """Commands whose errors are one line; ``--debug``, wherever it stands, shows the traceback."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        try:
            code = super().main(args, *rest, **{**options, "standalone_mode": False})
        except _UsageError as error:
            code = WRONG_USAGE
            if type(error).__name__ != "NoArgsIsHelpError":  # then the help was shown
                command = error.ctx.command_path if error.ctx is not None else "gradformer"
                _say(f"{_wrong(error)} (see: {command} --help)", ERROR)
        except SystemExit as ended:
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            code = NOBODY_READS  # typer and rich end with 1 where a pipe is closed
        sys.exit(code if isinstance(code, int) else 0)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args = ["--debug", *(word for word in args if word != "--debug")]
        with _in_one_line(ctx):  # --version, --help and the completion write here
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line(ctx):
            return super().invoke(ctx)


@contextmanager
def _in_one_line(ctx: Any) -> Iterator[None]:
    """Inside, what goes wrong is said in one line, and the program ends with its exit code."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError, _UsageError):
        raise
    except KeyboardInterrupt:
        resumable = ctx.invoked_subcommand in ("train", "search", "reproduce")
        _say("stopped" + "; if its folder is there, --resume continues it" * resumable)
        raise typer.Exit(128 + signal.SIGINT) from None
    except Exception as error:
        asked = getattr(error, "signal", None)
        if asked is not None:  # to stop, and all is saved; the code is as in a shell
            from gradformer.training.distributed import is_first

            if is_first():
                _say(str(error))
            raise typer.Exit(128 + int(asked)) from None
        if ctx.params.get("debug"):
            raise
        if isinstance(error, OSError) and error.errno in FULL:
            where = error.filename or "standard output"
            error = InputError(f"{where}: cannot be written ({error.strerror}); make room")
        error = spent(error) or error
        if isinstance(error, OSError) and error.errno in REFUSED and error.filename is not None:
            error = InputError(f"{error.filename}: {error.strerror}; mend the permissions")
        if isinstance(error, GradformerError):
            _say(str(error), ERROR)
            raise typer.Exit(TO_MEND) from None
        why = "a bug of gradformer: --debug shows where, please report it"
        if os.environ.get(VARIABLE):
            why = f"a bug of gradformer or of {VARIABLE}: --debug shows where"
        _say(f"{type(error).__name__}: {error} ({why})", ERROR)
        raise typer.Exit(BUG) from None


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 something to mend, 2 wrong command line, 70 a bug of ours, "
    "129 stopped by the end of the terminal, 130 by Ctrl-C, 141 by the end of a pipe that it "
    "writes to, 143 by a request to end. "
    "Begin with: gradformer train",
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gradformer {version('gradformer')}")
        raise typer.Exit


@app.callback()
def program(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error. Goes anywhere.")
    ] = False,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Graph transformers with exponential distance decay.

    Train on a benchmark, a table of molecules or any graphs; predict; look inside; compare.
    """
    warnings.showwarning = partial(_show_warning, set())


for verb in (train, evaluate, predict, embed, explain, report, search, models, doctor, export):
    app.command()(ungrouped(verb))
app.command()(ungrouped(reproduce))
app.add_typer(data_app, name="data", cls=Verbs)
for command in [*app.registered_commands, *data_app.registered_commands]:
    command.cls = Verb
    text = inspect.getdoc(command.callback) or ""  # to be wrapped by the terminal
    command.help = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _wrong(error: Any) -> str:
    """What is wrong with a command line; an option of the recipe is one of ``--set``."""
    option = str(getattr(error, "option_name", ""))
    parameters = error.ctx.command.params if error.ctx is not None else ()
    own = [_bare(word) for each in parameters for word in each.opts]
    if option and "set" in own:
        from gradformer.training.recipe import whole_names

        with suppress(GradformerError):  # the user's own models cannot be imported
            whole = whole_names()
            near = nearest(_bare(option), [*own, *whole])
            if near is not None and near not in own:
                return f"No such option: {option}; say --set {whole[near]}=VALUE"
    return str(error.format_message()).rstrip(".")


def _bare(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _say(text: str, before: Text | str = "") -> None:
    """One line on standard error, however wide the terminal is."""
    lines = filter(None, map(str.strip, text.splitlines()))  # a path may hold two spaces in a row
    line = before + " ".join(lines)
    with suppress(OSError, SystemExit):  # nobody reads on; the exit code still tells
        as_it_is(stderr=True).print(line, highlight=False, soft_wrap=True)


def _show_warning(
    said: set[str], message: Any, category: type[Warning], *where: Any, **more: Any
) -> None:
    """Each of ours once: Python forgets which it has shown when a library changes its filters."""
    if issubclass(category, GradformerWarning):
        if str(message) not in said:
            _say(str(message), WARNING)
        said.add(str(message))
    elif sys.warnoptions:
        print(f"{category.__name__}: {message}", file=sys.stderr)
