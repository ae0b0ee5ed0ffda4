"""What the reports share: a table, and where and when something was measured."""

from typing import Any


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def when(machine: dict[str, Any]) -> str:
    return f"{machine['date']}, {machine['processor']}, {machine['cores']} cores"
