"""The documentation build: the README as home page, docstrings as Markdown.

MkDocs calls the functions `on_...`; mkdocstrings loads the class `PlainDocstrings`.
"""

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent
# Files at the root that become pages, each if it is there.
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages made from files at the root at the end of the navigation."""
    for name, page in ROOT_PAGES.items():
        if config.nav is not None and (ROOT / name).exists():
            config.nav.append({name.removesuffix(".md").capitalize(): page})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages made from files at the root."""
    for name, page in ROOT_PAGES.items():
        if (ROOT / name).exists():
            content = relocate((ROOT / name).read_text(encoding="utf-8"))
            files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the README be the home page."""
    if page.file.src_uri == "index.md":
        return relocate((ROOT / "README.md").read_text(encoding="utf-8"))
    return markdown


def relocate(markdown: str) -> str:
    """Links as seen from docs/: `docs/x` becomes `x`; what the site does not hold, plain text."""

    def moved(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match.group()
        path, _, anchor = target.partition("#")
        page = ROOT_PAGES.get(path, path.removeprefix("docs/"))
        if path == "README.md":
            page = "index.md"
        elif path not in ROOT_PAGES and not path.startswith("docs/"):
            return text
        return f"{mark}[{text}]({page}{'#' + anchor if anchor else ''})"

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)


class PlainDocstrings(griffe.Extension):
    """Docstrings are plain text with examples and formulas; the site wants Markdown."""

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Kernels become dataclasses as they are made; say so, and their parameters are shown."""
        if {str(base) for base in cls.bases} & {"Kernel", "Stationary"}:
            value = griffe.ExprName("dataclasses.dataclass")
            cls.decorators.append(griffe.Decorator(value, lineno=None, endlineno=None))

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Rewrite a docstring that may speak of the fields by name."""
        _rewrite(cls, set(cls.members))

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Rewrite a docstring that may speak of the arguments by name."""
        _rewrite(func, {parameter.name for parameter in func.parameters})

    def on_module(self, *, mod: griffe.Module, **_: Any) -> None:
        """Rewrite the docstring of a module."""
        _rewrite(mod, set())

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Rewrite the docstring of a property."""
        _rewrite(attr, set())


def _rewrite(obj: griffe.Object, names: set[str]) -> None:
    if obj.docstring:
        obj.docstring.value = to_markdown(obj.docstring.value, names)


def to_markdown(text: str, names: set[str]) -> str:
    """Fence the examples, keep indented formulas, list the arguments, protect symbols like V_*."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n\n".join(_block(block.split("\n"), names) for block in blocks)


def _block(lines: list[str], names: set[str]) -> str:
    """One paragraph, example, formula or list of arguments."""
    example = next((i for i, line in enumerate(lines) if line.startswith(">>>")), None)
    if example is not None:
        before = [_block(lines[:example], names), ""] if example else []
        return "\n".join([*before, "```pycon", *lines[example:], "```"])
    if all(line.startswith("    ") for line in lines):
        return "\n".join(lines)
    return "\n".join(_argument(line, names) for line in lines)


def _argument(line: str, names: set[str]) -> str:
    """`name: text` as an item of a list, if it is one; its further lines follow it."""
    match = re.match(r'(\w+|"[^"]*"):\s+(.*)', line)
    if match and (match[1] in names or match[1].startswith('"')):
        return f"- `{match[1]}`: {_protect(match[2])}"
    return _protect(line.strip())


def _protect(text: str) -> str:
    """Escape what Markdown would take for emphasis, outside code."""
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*_<])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
