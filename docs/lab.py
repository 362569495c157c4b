"""The outputs that are stored in nbs/lab/experiment.ipynb: those of a recorded experiment, so that it can be read where
nothing is installed.

    python docs/lab.py     # runs it in an empty folder beside a copy of the record, and keeps what its cells gave
"""
import re
import shutil
import tempfile
from pathlib import Path

import nbformat
import papermill

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "nbs" / "lab" / "experiment.ipynb"
RECORD = ROOT / "benchmarks" / "experiments" / "feedback"      # which the notebook's parameters name


def still(output: nbformat.NotebookNode) -> nbformat.NotebookNode:
    "An output that every viewer shows: a drawing as a picture, dark on white, with a word for those who cannot see it."
    drawn = str(output.get("data", {}).get("text/html", ""))
    if drawn.startswith("<svg"):
        label = re.search(r'aria-label="([^"]*)"', drawn)[1]
        picture = drawn.replace("<style>", "<style>svg{color:#222;background:#fff}", 1)
        output["data"] = {"image/svg+xml": picture, "text/plain": label}
    output.pop("execution_count", None)
    if output.output_type == "execute_result":
        output["execution_count"] = None
    return output


def main() -> None:
    book = nbformat.read(NOTEBOOK, 4)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(RECORD, Path(folder) / "runs" / RECORD.name)
        done = papermill.execute_notebook(NOTEBOOK, Path(folder) / "done.ipynb", kernel_name="python3", cwd=folder,
                                          progress_bar=False)
    outputs = {cell.id: cell.outputs for cell in done.cells if cell.cell_type == "code"}
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [still(output) for output in outputs[cell.id]]
    nbformat.write(book, NOTEBOOK)


if __name__ == "__main__":
    main()
