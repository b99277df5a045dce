"""The model card of a trained model: data, settings and results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from camel.core.message import in_one_line

if TYPE_CHECKING:
    from camel.training.config import TrainConfig
    from camel.training.stored_rows import Rows
    from camel.training.train import Trained

_WIDTH, _HEIGHT = 640, 200


def write_card(
    config: TrainConfig, rows: list[Rows], result: Trained, losses: list[float], begun: dict[str, Any]
) -> None:
    """Write the model card `README.md`, and the loss curve `loss.svg`."""
    out = Path(config.out)
    (out / "loss.svg").write_text(curve(losses), "utf-8")
    labels = sorted({label for one in rows for label in _labels(one)})
    kind, what = "sft", "rows of conversations between"
    if config.preferences:
        kind, what = "dpo", "preferences of a critic between answers of"
    lines: list[str] = []
    for one in rows:
        settings = one.folder.settings()
        sources: list[dict[str, Any]] = settings.config.get("rows", {}).get("sources", [])
        names = ", ".join(f"{in_one_line(str(s.get('run', '')))} x {s.get('weight', 1)}" for s in sources)
        lines.append(f"| {len(one):,} | {names} | `{settings.fingerprint}` |")
    lines += [f"| | {in_one_line(name)} | |" for name in config.preferences]
    if labels:
        lines += ["", f"**This model was trained on data labeled {', '.join(map(in_one_line, labels))}.**"]
    template = Path(__file__).with_name("card.md").read_text("utf-8")
    card = template.format(
        base=json.dumps(config.model),
        kind=kind,
        labels=f"labels: {json.dumps(labels)}\n" if labels else "",
        name=in_one_line(out.name),
        model=in_one_line(config.model),
        what=what,
        data="\n".join(lines),
        settings=msgspec.json.format(msgspec.json.encode(config), indent=2).decode(),
        result=result,
        begun=begun,
    )
    (out / "README.md").write_text(card, "utf-8")


def _labels(rows: Rows) -> set[str]:
    from camel.record.parquet import arrow

    pq = arrow("pyarrow.parquet")
    found: set[str] = set()
    with rows.opened() as files:
        for file in files:
            column = pq.read_table(file, columns=["labels"]).column("labels").combine_chunks()
            found.update(column.flatten().unique().to_pylist())
    return found


def curve(losses: list[float]) -> str:
    """Return the loss curve as SVG."""
    top = max(losses, default=1.0) or 1.0
    last = max(1, len(losses) - 1)
    points = " ".join(
        f"{40 + (_WIDTH - 60) * at / last:.1f},{20 + (_HEIGHT - 50) * (1 - loss / top):.1f}"
        for at, loss in enumerate(losses)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="#fff"/>'
        f'<path d="M40 20V{_HEIGHT - 30}H{_WIDTH - 20}" fill="none" stroke="#888"/>'
        f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-width="2"/>'
        f'<text x="8" y="24" fill="#444">{top:.2f}</text><text x="22" y="{_HEIGHT - 26}" fill="#444">0</text>'
        f'<text x="{_WIDTH - 20}" y="{_HEIGHT - 12}" text-anchor="end" fill="#444">step {len(losses)}</text></svg>\n'
    )
