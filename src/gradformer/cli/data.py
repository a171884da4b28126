"""``gradformer data``: list, describe, fetch, verify and pack benchmark datasets."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gradformer.cli.complete import dataset_names
from gradformer.cli.options import Mirror
from gradformer.cli.tables import fact_table, plain_table, show
from gradformer.errors import GradformerWarning, InputError
from gradformer.recipes import recipe_names

if TYPE_CHECKING:
    from gradformer.graphs.cards import Card
    from gradformer.graphs.store import Store
    from gradformer.training.recipe import Recipe

data_app = typer.Typer(
    help="Benchmark datasets: what there is, where it is, and is it right.", no_args_is_help=True
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dataset, as `gradformer data list` shows it.",
        autocompletion=dataset_names,
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        help="Recipe whose model it is for, if not the dataset's own.",
        autocompletion=recipe_names,
    ),
]


@data_app.command("list")
def list_datasets(
    measure: Annotated[
        bool, typer.Option("--measure", help="Load every dataset and compare with the paper.")
    ] = False,
    data: Mirror = None,
) -> None:
    """List the datasets; with --measure, load each and set it beside its card and the paper.

    Example: [bold]gradformer data list[/bold]
    """
    from gradformer.graphs.cards import card_names, find_card

    if measure:
        from gradformer.graphs.datasets import open_card
        from gradformer.graphs.summary import COLUMNS, comparison_row

        table = plain_table(*COLUMNS, right=COLUMNS[1:4])
        for column in table.columns[:-1]:
            column.no_wrap = True
        for name in card_names():
            card = find_card(name)
            table.add_row(*comparison_row(card, open_card(card, data)))
        table.caption = "paper: graphs: mean nodes, mean edges"
    else:
        from gradformer.training.metrics import metric_name

        table = plain_table("name", "graphs", "task", "metric", "about", right=("graphs",))
        for name in card_names():
            card = find_card(name)
            task = f"{card.level} {card.task}"
            table.add_row(name, f"{card.graphs:,}", task, metric_name(card.metric), card.about)
    show(table)


@data_app.command()
def info(name: Name, data: Mirror = None, recipe: RecipeName = None) -> None:
    """Describe a dataset: figures, size of its store, and GPU memory for a recipe.

    Example: [bold]gradformer data info mutag[/bold]
    """
    from gradformer.graphs.cards import find_card
    from gradformer.graphs.datasets import split_of
    from gradformer.graphs.summary import estimate_memory, mean_sizes
    from gradformer.model.base import create_model
    from gradformer.training.metrics import metric_label

    card = find_card(name)
    chosen = recipe or card.name
    config, store = _packed(card, chosen, data)
    table = fact_table(2)
    table.add_row("dataset", f"{card.title}: {card.about}")
    table.add_row("task", f"{card.level} {card.task}, scored by {metric_label(card.metric)}")
    sizes = " / ".join(f"{len(part):,}" for part in split_of(card, store))
    table.add_row("graphs", f"{store.num_graphs:,}, {card.split} split {sizes} ({card.protocol})")
    table.add_row("mean", "{:,.2f} nodes, {:,.2f} edges".format(*mean_sizes(card, store)))
    table.add_row("largest", f"{store.sizes.max():,} nodes")
    table.add_row("pairs", f"{store.num_pairs:,}")
    table.add_row("store", f"{_megabytes(store.nbytes)} in {store.folder}")
    model = create_model(config.model.name, store.schema, config=config.model.config)
    memory = estimate_memory(
        store,
        parameters=sum(p.numel() for p in model.parameters()),
        layers=config.model.config.layers,
        width=config.model.config.width,
        batch_size=config.train.batch_size,
    )
    kind = config.model.name
    but = "" if kind == "gradformer" else f" (estimated as for a Gradformer: {kind} may differ)"
    table.add_row(
        "GPU memory",
        f"about {_megabytes(memory.total)} for recipe {chosen}: data "
        f"{_megabytes(memory.store)}, model {_megabytes(memory.model)}, step "
        f"{_megabytes(memory.step)}{but}",
    )
    table.add_row("exactness", card.exactness)
    table.add_row("citation", card.citation)
    show(table)


@data_app.command("fetch")
def fetch_dataset(name: Name) -> None:
    """Download the raw files of a dataset into the cache.

    Example: [bold]gradformer data fetch zinc[/bold]
    """
    from gradformer.graphs.cards import find_card
    from gradformer.graphs.mirror import cache_folder, fetch

    card = find_card(name)
    if card.download:
        fetch(card, cache_folder() / "raw")
        typer.echo(f"{card.name}: raw files are in {cache_folder() / 'raw'}")
    else:
        typer.echo(f"{card.name} is generated: there is nothing to fetch")


@data_app.command()
def verify(name: Name, data: Mirror = None) -> None:
    """Check the raw files of a dataset against the checksums of its card; nothing is downloaded.

    Example: [bold]gradformer data verify mutag[/bold]
    """
    from gradformer.graphs.cards import find_card
    from gradformer.graphs.mirror import raw_files

    card = find_card(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradformerWarning)  # the table below says it better
        files = raw_files(card, data, may_fetch=False)
    for path, found in files.sums.items():
        known = "DIFFERS" if path in files.unknown else "ok"
        word = known if path in card.files else "not on the card"
        typer.echo(f"{word}  {found}  {path}")
    if files.unknown:
        raise InputError(
            f"{card.name}: {len(files.unknown)} of {len(files.sums)} files under {files.root} "
            "differ from the card"
        )
    if not files.sums:
        typer.echo(f"{card.name} is generated: there is no file to verify")


@data_app.command()
def pack(name: Name, data: Mirror = None, recipe: RecipeName = None) -> None:
    """Build the store of a dataset, ready for training.

    Example: [bold]gradformer data pack zinc[/bold]
    """
    from gradformer.graphs.cards import find_card

    card = find_card(name)
    began = time.perf_counter()
    _, store = _packed(card, recipe or card.name, data)
    seconds = time.perf_counter() - began
    typer.echo(f"{store.folder}: {_megabytes(store.nbytes)}, {seconds:.1f} s")


def _packed(card: Card, recipe: str, data: Path | None) -> tuple[Recipe, Store]:
    """A recipe, and the store of a dataset as training by it opens it."""
    from gradformer.graphs.datasets import open_card
    from gradformer.training.recipe import load_recipe

    chosen = load_recipe(recipe)
    return chosen, open_card(card, data, chosen.model.config.needs())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
