"""The program: its verbs, and how it says that something went wrong."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from gradformer.cli.data import data_app
from gradformer.cli.doctor import doctor
from gradformer.cli.embed import embed
from gradformer.cli.evaluate import evaluate
from gradformer.cli.explain import explain
from gradformer.cli.export import export
from gradformer.cli.models import models
from gradformer.cli.predict import predict
from gradformer.cli.report import report
from gradformer.cli.reproduce import reproduce
from gradformer.cli.search import search
from gradformer.cli.train import train
from gradformer.errors import GradformerError, GradformerWarning

BUG = 70


class Program(TyperGroup):
    """Commands whose errors are one line; ``--debug``, wherever it stands, shows the traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--debug" in args:
            args = ["--debug", *(word for word in args if word != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _say("stopped before anything was saved")
            raise typer.Exit(130) from None
        except GradformerError as error:
            if ctx.params["debug"]:
                raise
            _say(str(error))
            raise typer.Exit(_exit_code(error)) from None
        except Exception as error:
            # Usage errors are typer's own to print; their class has no public name.
            if ctx.params["debug"] or hasattr(error, "exit_code"):
                raise
            _say(f"{type(error).__name__}: {error}")
            _say("this is a bug of gradformer; --debug shows where, please report it")
            raise typer.Exit(BUG) from None


app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 something to mend, 2 wrong command line, 70 a bug of ours, "
    "130 stopped by Ctrl-C, 143 by a request to end. Begin with: gradformer train",
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
    warnings.showwarning = _show_warning


def main() -> None:
    """Run the program."""
    app()


for verb in (train, evaluate, predict, embed, explain, report, search, models, doctor, export):
    app.command()(verb)
app.command()(reproduce)
app.add_typer(data_app, name="data")


def _say(text: str) -> None:
    """One line on standard error, however wide the terminal is."""
    Console(stderr=True).print(
        f"[bold red]error:[/] {_plain(text)}", highlight=False, soft_wrap=True
    )


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(" ".join(text.split()))


def _exit_code(error: GradformerError) -> int:
    """128 + the signal for a run that was asked to stop, as a shell counts; else 1."""
    signal = getattr(error, "signal", None)
    return 1 if signal is None else 128 + int(signal)


def _show_warning(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
    if issubclass(category, GradformerWarning):
        Console(stderr=True).print(
            f"[yellow]warning:[/] {_plain(str(message))}", highlight=False, soft_wrap=True
        )
    elif not sys.warnoptions:
        return
    else:
        print(f"{category.__name__}: {message}", file=sys.stderr)
