"""`camel translate`: a run's conversations in other languages."""

from __future__ import annotations

from typing import Annotated

import typer


def translate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's folder, or s3://bucket/prefix.")],
    to: Annotated[
        list[str], typer.Option(metavar="CODE", help="A language: ar zh ko ja hi ru es fr de it; repeatable.")
    ],
    model: Annotated[
        str, typer.Option(envvar="CAMEL_MODEL", metavar="NAME", help="The model that translates.")
    ] = "",
    base_url: Annotated[
        str, typer.Option(envvar="OPENAI_BASE_URL", metavar="URL", help="Its endpoint.")
    ] = "",
    concurrency: Annotated[int, typer.Option(help="Conversations in flight.")] = 64,
) -> None:
    """Put every message of a run into other languages, keeping the markers. The same command goes on after a stop."""
    import asyncio

    from camel.generation import translate as translation
    from camel.models.connect import connect
    from camel.storage.reader import Run

    records = Run(run)
    chat = connect(model, base_url=base_url)

    async def work() -> None:
        async with chat:
            for language in to:
                typer.echo(f"{len(records):,} conversations into {language} …")
                done = await translation.translate(records, language, chat, concurrency=concurrency)
                typer.echo(
                    f"  done: stage translated-{language}, {done.damaged:,} messages damaged beyond mending"
                )

    asyncio.run(work())
