"""The outputs that are stored in the notebooks of nbs/lab, so that they can be read where nothing is installed.

    python docs/lab.py experiment        # those of a recorded experiment: some seconds
    python docs/lab.py frames            # those of readers of pictures: two minutes
    python docs/lab.py envgen            # those of `make run`: some minutes
    python docs/lab.py envgen FOLDER     # the same, from the folder of such a run that is finished

Each notebook runs in an empty folder. Figures are stored as pictures, which every viewer shows and which are small.
"""
import base64
import io
import re
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
import papermill
from PIL import Image
from tables import alone, unpack

from envgen_nb.agent.clips import few_colours
from envgen_nb.experiment.batch import run_notebook
from envgen_nb.results.report import webp

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
LAB = ROOT / "nbs" / "lab"
RECORD = "feedback"      # the experiment that the parameters of experiment.ipynb name
FIGURE = "application/vnd.plotly.v1+json"
DRAW = """async figure => {
    const image = await Plotly.toImage(figure, {format: 'png', width: 900, height: figure.layout.height, scale: 1.2});
    return image.split(',')[1];
}"""


def pictures(figures: list[dict]) -> list[bytes]:
    "Plotly's figures as PNG files, drawn in a browser."
    import plotly
    from browser import chromium
    made = []
    with chromium() as browser:
        page = browser.new_page()
        page.add_script_tag(path=Path(plotly.__file__).parent / "package_data" / "plotly.min.js")
        for figure in figures:
            drawn, small = base64.b64decode(page.evaluate(DRAW, figure)), io.BytesIO()
            few_colours(Image.open(io.BytesIO(drawn)).convert("RGB")).save(small, "PNG", optimize=True)
            made.append(small.getvalue())
    return made


def smaller(found: re.Match) -> str:
    "A picture within a page, as a small one."
    made = webp(np.asarray(Image.open(io.BytesIO(base64.b64decode(found[1]))).convert("RGB")), 600, 40)
    return f"data:image/webp;base64,{base64.b64encode(made).decode()}"


def still(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    "An output that every viewer shows, with a word for those who cannot see it: drawings dark on white."
    data = output.get("data", {})
    shown = str(data.get("text/html", ""))
    if FIGURE in data:
        title = data[FIGURE]["layout"]["title"]["text"]
        picture, = pictures([data[FIGURE]])
        output["data"] = {"image/png": base64.b64encode(picture).decode(), "text/plain": title}
        output["metadata"] = {}
    elif shown.startswith("<svg"):
        label = re.search(r'aria-label="([^"]*)"', shown)[1]
        output["data"] = {"image/svg+xml": alone(shown), "text/plain": label}
    elif shown:
        data["text/html"] = re.sub(r"data:image/png;base64,([\w+/=]+)", smaller, shown)
    output.pop("execution_count", None)
    if output.output_type == "execute_result":
        output["execution_count"] = None
    return output


def executed(name: str, folder: Path) -> Path:
    "The notebook as it ran in this folder."
    if name == "envgen":
        return run_notebook({"simulator": "crafter"}, folder / "runs" / "crafter")
    unpack(RECORD, folder / "runs" / RECORD)
    papermill.execute_notebook(LAB / f"{name}.ipynb", folder / "done.ipynb", kernel_name="python3", cwd=folder,
                               progress_bar=False)
    return folder / "done.ipynb"


def main(name: str, run: str = "") -> None:
    with tempfile.TemporaryDirectory() as folder:
        done = nbformat.read(Path(run) / f"{name}.ipynb" if run else executed(name, Path(folder)), 4)
    outputs = {cell.id: cell.outputs for cell in done.cells if cell.cell_type == "code"}
    book = nbformat.read(LAB / f"{name}.ipynb", 4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [still(output) for output in outputs[cell.id]]
    nbformat.write(book, LAB / f"{name}.ipynb")


if __name__ == "__main__":
    main(*sys.argv[1:])
