"""What the site has beside the guides: notebooks as pages, the reference from docstrings and docments, equations."""
import ast
import hashlib
import html
import io
import json
import os
import re
import shutil
import tokenize
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)
DOCS = Path(__file__).parent
ROOT = DOCS.parent
MADE = ("notebooks", "reference", "project", "extra")     # folders in docs/ that are made here, and ignored by git
REPORTS = ("benchmarks/experiments", "docs/gallery")       # whose HTML files the site has as they are
PARTS = {     # folder of nbs/ → its title, in the order of reading
    "1_game": "Worlds, and the contract of a game", "2_designer": "Designers", "3_agent": "Agents",
    "4_curriculum": "Curricula", "5_cycle": "The cycle", "6_results": "Results", "7_experiment": "Experiments",
    "8_studio": "The studio", "9_simulators/crafter": "Crafter", "9_simulators/heist": "Heist",
    "9_simulators/minigrid": "MiniGrid", "9_simulators/walker": "Walker", "9_simulators/road": "Road",
    "9_simulators/envpool": "EnvPool",
    "extras": "Other learners, and commands", "frames": "Labelled frames", "lab": "Notebooks to run",
    "workshop": "Workshop"}


PARTS |= {part: part.rpartition("/")[2].capitalize() for part in sorted(
    {path.parent.relative_to(ROOT / "nbs").as_posix() for path in (ROOT / "nbs").rglob("[!.]*/*.ipynb")} - set(PARTS))}


def version() -> str:
    "Of the package, without importing it."
    return re.search(r'^__version__ = "(.*)"', (ROOT / "envgen_nb" / "__init__.py").read_text(), re.MULTILINE)[1]


def write(path: Path, text: str) -> Path:
    "A file, touched only if it changes, so that Sphinx reads it again only then."
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


# Links. The sources are written so that they work in the repository; the site has other places.

def place(target: Path) -> str | None:
    "The page of the site that shows a file of the repository, from the root of the site; None: there is none."
    inside = target.relative_to(ROOT)
    if inside.parts[0] == "nbs" and 2 <= len(inside.parts) <= 4 and target.suffix in (".ipynb", ".md"):
        return f"/notebooks/{inside.relative_to('nbs')}"
    if inside.parts[0] == "docs" and target.suffix in (".md", ".png", ".svg", ".webp"):
        return f"/{inside.relative_to('docs')}"
    if target.suffix == ".html" and inside.parent.as_posix() in REPORTS:
        return f"/reports/{target.name}"
    return {"README.md": "/index.md", "CHANGELOG.md": "/project/changelog.md",
            "CONTRIBUTING.md": "/project/contributing.md"}.get(str(inside))


def home(folder: Path) -> str:
    "The folder of the site for the pages that are made of texts in a folder of the repository."
    if folder == ROOT:
        return "/project"
    if folder.is_relative_to(DOCS):
        return f"/{folder.relative_to(DOCS)}"
    return f"/notebooks/{folder.relative_to(ROOT / 'nbs')}"


def relink(text: str, folder: Path) -> str:
    "The links of a text from that folder of the repository, as links of the site; what the site lacks is only named."
    def one(match: re.Match) -> str:
        picture, label, target = match.groups()
        path, hashed, anchor = target.partition("#")
        if re.match(r"[a-z]+:|#|/|attachment:", target):
            return match[0]
        file = Path(os.path.normpath(folder / path))
        if not file.exists():
            raise ValueError(f"{folder}: no file {path}")
        found = place(file)
        if found and target.endswith(".html"):            # no page of Sphinx: a link as HTML has it
            return f'<a href="{os.path.relpath(found, home(folder))}">{label}</a>'
        if found:
            return f"{picture}[{label}]({found}{hashed}{anchor})"
        name = str(file.relative_to(ROOT))
        return label if name in label else f"{label} (`{name}`)"
    return re.sub(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)", one, text)




# Notebooks

def plotly_html(figure: dict[str, Any], key: str) -> str:
    "A plotly figure that the page draws by itself, with the script that comes with the package plotly."
    grid = {"gridcolor": "rgba(128,128,128,0.25)", "zerolinecolor": "rgba(128,128,128,0.5)"}
    clear = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}       # the page shows through
    clear |= {axis: grid | figure["layout"].get(axis, {}) for axis in ("xaxis", "yaxis")}
    return (f'<div id="{key}" style="min-height:420px"></div><script>(function draw() {{ if (!window.Plotly) '
            f'{{ setTimeout(draw, 100); return; }} Plotly.newPlot("{key}", {json.dumps(figure["data"])}, '
            f'{json.dumps(figure["layout"] | clear)}, {{responsive: true}}); const ink = () => Plotly.relayout('
            f'"{key}", '
            '{"font.color": getComputedStyle(document.body).color}); ink(); new MutationObserver(ink).observe('
            'document.body, {attributes: true, attributeFilter: ["data-theme"]}); })();</script>')


def notebook(path: Path) -> str:
    "A notebook of nbs/ as a page: without its commands to nbdev, links as the site has them, figures that draw."
    book, drawn = nbformat.read(path, 4), False
    cells = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = relink(cell.source, path.parent)
        if cell.cell_type == "code":
            if re.match(r"#\| *(default_exp|hide\b)", cell.source) and "\n" not in cell.source.strip():
                continue
            cell.source = re.sub(r"^(#\| *(export|exporti|exports|eval:.*|hide_.*)\n)+", "", cell.source)
            for k, output in enumerate(cell.get("outputs", [])):
                data = output.get("data", {})
                figure = data.pop("application/vnd.plotly.v1+json", None)
                if drawing := data.pop("image/svg+xml", None):         # in the colours of the page
                    data["text/html"] = drawing.replace("svg{color:#222;background:#fff}", "")
                if "image/png" in data and not data.get("text/plain", "<").startswith("<"):      # of docs/lab.py
                    picture, label = data.pop("image/png").strip(), html.escape(data["text/plain"])
                    data["text/html"] = f'<img class="plot" alt="{label}" src="data:image/png;base64,{picture}">'
                clip = output.get("data", {}).pop("image/webp", None)
                if clip:
                    output.data["text/html"] = f'<img alt="" src="data:image/webp;base64,{clip.strip()}">'
                if figure:
                    drawn = True
                    output.data["text/html"] = plotly_html(figure, f"figure-{cell.id}-{k}")
        cells.append(cell)
    first = next(cell for cell in cells if cell.cell_type == "markdown")
    file = os.path.relpath(path, (DOCS / "notebooks" / path.relative_to(ROOT / "nbs")).parent)
    first.source += f"\n\n{{download}}`Download this notebook <{file}>`"
    if drawn:
        up = "../" * (len(path.relative_to(ROOT / "nbs").parts))
        script = f'```{{raw}} html\n<script src="{up}_static/plotly.min.js"></script>\n```'
        cells.append(nbformat.v4.new_markdown_cell(script, id="plotly-script"))
    book.cells = cells
    return nbformat.writes(book)


def title(path: Path) -> tuple[str, str]:
    "The title of a notebook, and its subtitle."
    text = next(cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "markdown")
    lines = [line for line in text.splitlines() if line.strip()]
    second = lines[1] if len(lines) > 1 else ""
    return lines[0].lstrip("# "), second.lstrip("> ").strip("*") if second.startswith((">", "**")) else ""


def notebooks() -> list[Path]:
    "All notebooks as pages, and a page that lists them."
    made, index = [], ["# The notebooks", "", "Every part of the kit is a notebook that explains, defines, shows and "
                       "tests it. They can be read in this order: each comes after what it imports.", ""]
    for path in sorted((ROOT / "nbs").glob("*.ipynb")):                     # the page; the site's first page lists it
        made.append(write(DOCS / "notebooks" / path.name, notebook(path)))
        head, what = title(path)
        index += [f"- [{head}](/notebooks/{path.name}): {what}", ""]
    for part, name in PARTS.items():
        books = sorted((ROOT / "nbs" / part).glob("*.ipynb"))
        index += [f"## {name}", ""]
        for path in books:
            made.append(write(DOCS / "notebooks" / part / path.name, notebook(path)))
            head, what = title(path)
            number = re.match(r"\d+[a-z]?(?=_)", path.name)
            index.append(f"- [{number[0] + ' ' if number else ''}{head}](/notebooks/{part}/{path.name})"
                         f"{': ' + what if what else ''}")
        texts = sorted((ROOT / "nbs" / part).glob("*.md"))                  # the teacher's page
        for path in texts:
            made.append(write(DOCS / "notebooks" / part / path.name, relink(path.read_text(), path.parent)))
            index.append(f"- [{path.read_text().splitlines()[0].lstrip('# ')}](/notebooks/{part}/{path.name})")
        entries = "\n".join(f"{part}/{path.stem}" for path in [*books, *texts])
        index += ["", f"```{{toctree}}\n:hidden:\n:caption: {name}\n\n{entries}\n```", ""]
    return [*made, write(DOCS / "notebooks" / "index.md", relink("\n".join(index), DOCS))]


# Reference: functions and classes with their docstrings, and a table of their docments, the comments at the arguments

def comments(source: str) -> dict[int, str]:
    "Line → the comment at its end."
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.line[:token.start[1]].strip():
            text = token.string.lstrip("# ").strip()
            if not text.startswith("noqa"):
                found[token.start[0]] = re.sub(r"\s*# noqa.*", "", text)
    return found


def rows(function: ast.FunctionDef, said: dict[int, str]) -> list[tuple[str, str]]:
    "Each argument that has a comment, and the comment; at last what is returned."
    args = function.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
    lines = [one.end_lineno for one in every]
    ends = {id(default): default.end_lineno for default in [*args.defaults, *filter(None, args.kw_defaults)]}
    last = max([*lines, *ends.values(), 0])
    found = [(one.arg, said[one.lineno]) for one in every
             if one.lineno in said and lines.count(one.lineno) == 1 and one.lineno < function.body[0].lineno]
    closing = [line for line in range(last + 1, function.body[0].lineno) if line in said]
    if function.returns is not None and closing:
        found.append(("returns", " ".join(said[line] for line in closing)))
    elif function.returns is not None and last == function.lineno and function.lineno in said and len(every) != 1:
        found.append(("returns", said[function.lineno]))
    return found


def cell(text: str) -> str:
    "Text for a cell of a Markdown table."
    return re.sub(r"(?<!\\)\|", r"\\|", text.replace("\n", " ").replace("<", "&lt;").replace("$", r"\$"))


def prose(node: ast.AST) -> str:
    "A docstring as Markdown."
    text = ast.get_docstring(node) or ""
    return re.sub(r"\$", r"\\$", text).replace("<", "&lt;")


class Whole(ast.NodeTransformer):
    "Names of the package's own classes in annotations, with their modules, so that each link finds its own."

    def __init__(self, names: dict[str, str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.names.get(node.id, node.id))


def imported(tree: ast.Module, name: str) -> dict[str, str]:
    "What a module has from others of the package, and its own classes: name → name with its module."
    found = {node.name: f"{name}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*name.split(".")[:-node.level], *filter(None, [node.module])])
            found |= {one.asname or one.name: f"{base}.{one.name}" for one in node.names}
    return found


def signature(function: ast.FunctionDef, skip: int = 0) -> str:
    "Arguments and result as they are written."
    args = function.args
    if skip:
        args = ast.arguments(args.posonlyargs, args.args[1:], args.vararg, args.kwonlyargs, args.kw_defaults,
                             args.kwarg, args.defaults)
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    return f"({ast.unparse(args)}){returns}"


def directive(kind: str, head: str, inside: str, depth: int, *options: str) -> str:
    "An object of the reference."
    fence = ":" * (6 - depth)
    return "\n".join([f"{fence}{{py:{kind}}} {head}", *options, "", inside.strip(), fence, ""])


def table(found: list[tuple[str, str]], head: str) -> str:
    lines = [f"| `{name}` | {cell(text)} |" if name != "returns" else f"| *returns* | {cell(text)} |"
             for name, text in found]
    return "\n".join([f"| {head} | |", "|---|---|", *lines, ""]) if lines else ""


def describe_function(node: ast.FunctionDef, said: dict[int, str], depth: int = 0, method: bool = False) -> str:
    names = {ast.unparse(one).split(".")[-1] for one in node.decorator_list}
    kind = ("property" if "property" in names else "method") if method else "function"
    static = "staticmethod" in names
    head = node.name if kind == "property" else node.name + signature(node, method and not static)
    options = [":staticmethod:"] * static + [":classmethod:"] * ("classmethod" in names) \
        + [":abstractmethod:"] * ("abstractmethod" in names)
    return directive(kind, head, f"{prose(node)}\n\n{table(rows(node, said), 'argument')}", depth, *options)


def describe_class(node: ast.ClassDef, methods: list[ast.FunctionDef], said: dict[int, str]) -> str:
    inside = [one for one in node.body if isinstance(one, ast.FunctionDef)]
    start = next((one for one in inside if one.name == "__init__"), None)
    fields = [(one.target.id, said.get(one.lineno, ""), ast.unparse(one.annotation), one.value) for one in node.body
              if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.target.id[0] != "_"]
    lines = [f"| `{name}` | `{cell(kind)}` | {cell(text or described(value))} |" for name, text, kind, value in fields]
    about = "\n".join(["| field | type | |", "|---|---|---|", *lines, ""]) if lines else ""
    if start:
        about += "\n" + table(rows(start, said), "argument")
    body = [describe_function(one, said, 1, True) for one in [*inside, *methods]
            if not one.name.startswith("_") and ast.get_docstring(one)]
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    head = node.name + (signature(start, 1).split(" -> ")[0] if start else "")
    inherits = f"Inherits from `{bases}`." if bases else ""
    return directive("class", head, "\n\n".join([prose(node), inherits, about, *body]), 0)


def described(value: ast.expr | None) -> str:
    "What pydantic's Field says of a field."
    if isinstance(value, ast.Call):
        for one in value.keywords:
            if one.arg == "description" and isinstance(one.value, ast.Constant):
                return str(one.value.value)
    return ""


def module(path: Path) -> str:
    "A module's public functions and classes, in the order of the source."
    source = path.read_text()
    tree, said = ast.parse(source), comments(source)
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    public = next((ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)
                   and ast.unparse(node.targets[0]) == "__all__"), [])
    patched: dict[str, list[ast.FunctionDef]] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.args.args and node.args.args[0].annotation is not None \
                and any(ast.unparse(one).split("(")[0] == "patch" for one in node.decorator_list):
            patched.setdefault(ast.unparse(node.args.args[0].annotation).split(".")[-1], []).append(node)
    source_of = re.search(r"File to edit: .*?nbs/(\S+?\.ipynb)", source)
    whole = Whole(imported(tree, name))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            node.annotation = whole.visit(node.annotation)
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            node.returns = whole.visit(node.returns)
    lines = [f"## {name}", "", prose(tree), ""]
    if source_of:
        lines += [f"From the notebook [{Path(source_of[1]).stem}](/notebooks/{source_of[1]}).", ""]
    lines += [f"```{{py:module}} {name}\n```", ""]
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in public:
            lines.append(describe_class(node, patched.pop(node.name, []), said))
        elif isinstance(node, ast.FunctionDef) and node.name in public:
            lines.append(describe_function(node, said))
    return "\n".join(lines)


def page(part: str) -> str:
    "The name of a part's page in the reference: `9_simulators/crafter` has `crafter`."
    return re.sub(r"^\d_", "", part.rpartition("/")[2])


def reference() -> list[Path]:
    "A page for each part of the package, and a page that lists them."
    parts: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "envgen_nb").rglob("*.py")):
        named = re.search(r"File to edit: .*?nbs/([\w/]+)/\d+_", path.read_text()[:2000])
        if named:
            part = f"{named[1]}_fast" if path.parent.name == "fast" else named[1]
            parts.setdefault(part, []).append(path)
    made, index = [], ["# Reference", "", "Functions and classes with what their docstrings and the comments at their "
                       "arguments say. The notebooks explain them.", ""]
    titles = PARTS | {"9_simulators/crafter_fast": "Crafter: the compiled engine"}
    order = [name for part in PARTS for name in (part, f"{part}_fast") if name in parts]
    for part in order:
        text = "\n\n".join([f"# {titles[part]}", *(module(path) for path in parts[part])])
        made.append(write(DOCS / "reference" / f"{page(part)}.md", text))
        names = ", ".join(f"`{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}`" for path in parts[part])
        index.append(f"- [{titles[part]}](/reference/{page(part)}.md): {names.replace('.__init__', '')}")
    listed = "\n".join(map(page, order))
    index += ["", f"```{{toctree}}\n:hidden:\n\n{listed}\n```"]
    return [*made, write(DOCS / "reference" / "index.md", "\n".join(index))]


def project() -> list[Path]:
    "The changelog and how to contribute, which are in the root of the repository."
    return [write(DOCS / "project" / f"{name.lower()}.md", relink((ROOT / f"{name}.md").read_text(), ROOT))
            for name in ("CHANGELOG", "CONTRIBUTING")]


def reports() -> list[Path]:
    "The reports of experiments and of the gallery."
    return [write(DOCS / "extra" / "reports" / path.name, path.read_text())
            for folder in REPORTS for path in sorted((ROOT / folder).glob("*.html"))]


# Sphinx

def make(app: Any, config: Any) -> None:
    "All pages that are made, before Sphinx looks for pages; those of the last time that are no more are deleted."
    made = {*notebooks(), *reference(), *project(), *reports()}
    for folder in MADE:
        for path in (DOCS / folder).rglob("*"):
            if path.is_file() and path not in made:
                path.unlink()


def read(app: Any, name: str, content: list[str]) -> None:
    "The guides' links to files of the repository."
    if name.startswith("guides/"):
        content[0] = relink(content[0], DOCS / "guides")


def finish(app: Any, error: Exception | None) -> None:
    "The script of plotly, from the installed package."
    if error is None and app.builder.format == "html":
        import plotly
        shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", Path(app.outdir) / "_static")


# docutils sets the index of a letter with a hat below the letter
HAT = re.compile(r'<munderover>\s*(<mi>\w</mi>)\s*(.*?)\s*(<mo stretchy="false">ˆ</mo>)\s*</munderover>', re.DOTALL)


SIZES = re.compile(r"\\(?:mathrel|[bB]igg?[lrm]?)(?![A-Za-z])")      # spaces and sizes, which MathML finds by itself


def mathml(tex: str, block: bool) -> str:
    "An equation as MathML; what docutils cannot convert is logged, and shown as it was written."
    try:
        found = tex2mathml(SIZES.sub("", tex), as_block=block)
        return HAT.sub(r'<msub><mover accent="true">\1\3</mover>\2</msub>', found)
    except MathError as error:
        logger.warning("%s in %s", error, tex)
        return f"<code>{html.escape(tex)}</code>"


def inline_math(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), False))
    raise nodes.SkipNode


def block_math(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{mathml(node.astext(), True)}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("config-inited", make)
    app.connect("source-read", read)
    app.connect("build-finished", finish)
    return {"version": hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12], "parallel_read_safe": True}
