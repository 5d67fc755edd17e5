"""What `make docs` makes besides the pages in this folder: the API reference, the changelog, the recipes.

A name is public that one of `PUBLIC` offers; it is on the page of the module that defines it.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
PUBLIC = (
    "sparkdl",
    "sparkdl.spark",
    "sparkdl.spark.summary",
    "sparkdl.spark.scoring",
    "sparkdl.network",
    "sparkdl.base_network",
    "sparkdl.boxes",
    "sparkdl.constraints",
    "sparkdl.stepping",
    "sparkdl.generation",
    "sparkdl.weights",
    "sparkdl.layers",
    "sparkdl.losses",
    "sparkdl.optimizers",
    "sparkdl.schedules",
    "sparkdl.initializers",
    "sparkdl.training",
    "sparkdl.training.records.timeline",
    "sparkdl.evaluation",
    "sparkdl.datasets",
    "sparkdl.models",
    "sparkdl.interchange",
    "sparkdl.text",
    "sparkdl.predict",
    "sparkdl.mlflow_flavor",
)


def public_names() -> dict[str, list[str]]:
    """The public names by the module that defines them."""
    homes: dict[str, list[str]] = {}
    for package in PUBLIC:
        module = import_module(package)
        for name in getattr(module, "__all__", None) or dir(module):
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            if name.startswith("_") or not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            own = home == package or hasattr(module, "__path__")  # a package offers what its modules define
            ours = home.startswith("sparkdl.") and home != "sparkdl.lazy"
            if ours and own and name not in homes.setdefault(home, []):
                homes[home].append(name)
    return {home: homes[home] for home in sorted(homes) if homes[home]}


def page_of(module: str) -> str:
    """Path of the module's page."""
    return f"reference/{module.removeprefix('sparkdl.').replace('.', '/')}.md"


def at_home(text: str) -> str:
    """Links of a file of the repository as a page of the site: to its pages, or paths where it has none."""
    text = re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    text = text.replace("](CHANGELOG.md)", "](changelog.md)").replace("](CONTRIBUTING.md)", "](contributing.md)")
    return re.sub(r"\[([^\]]+)\]\(((?:sparkdl|tests|notebooks|benchmarks)/[^)]+)\)", r"\1 (`\2`)", text)


def write_pages() -> None:
    """Write them into the build that is running."""
    import mkdocs_gen_files

    index = ["# API reference", "", "A page a module, of what is public in it.", ""]
    summary = ["* [Overview](index.md)"]
    for module, names in public_names().items():
        page = page_of(module)
        doc = (import_module(module).__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        with mkdocs_gen_files.open(page, "w") as file:
            print(f"# {module}\n\n{doc}\n", file=file)
            for name in names:
                print(f"::: {module}.{name}\n", file=file)
        relative = page.removeprefix("reference/")
        index.append(f"- [`{module}`]({relative}): {', '.join(names)}")
        summary.append(f"* [{module.removeprefix('sparkdl.')}]({relative})")
    for name, lines in (("index", index), ("SUMMARY", summary)):
        with mkdocs_gen_files.open(f"reference/{name}.md", "w") as file:
            print("\n".join(lines), file=file)
    for name in ("CHANGELOG", "CONTRIBUTING"):
        with mkdocs_gen_files.open(f"{name.lower()}.md", "w") as file:
            file.write(at_home((ROOT / f"{name}.md").read_text(encoding="utf-8")))


if __name__ == "<run_path>" or "mkdocs" in __name__:
    write_pages()
