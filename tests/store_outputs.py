"""Run notebooks and store what their code cells show; nothing else in the files changes.

python tests/store_outputs.py [notebook ...]     all of notebooks/ unless some are named
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

ROOT = Path(__file__).resolve().parent.parent
# IPython writes ~ for the home folder.
HERE = {str(ROOT), re.sub(f"^{re.escape(str(Path.home()))}", "~", str(ROOT))}
CHECKOUT = re.compile("|".join(re.escape(here + os.sep) for here in HERE))
ON_THE_CPU = {"GA_DEVICE": "cpu", "CUDA_VISIBLE_DEVICES": ""}
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class NotStored(Exception):
    """A notebook that must not be committed as it stands: which cell, and why."""


def store_outputs(path: Path) -> bool:
    """Whether the file changed by running its notebook and storing the outputs.

    Raises:
        NotStored: a cell raised without being tagged ``raises-exception``, or wrote to stderr.
            The file is left as it was.
    """
    before = path.read_bytes().decode()
    document = json.loads(before)
    executed = run(path)
    for cell, ran in zip(document["cells"], executed["cells"], strict=True):
        if cell["cell_type"] == "code":
            cell["execution_count"] = ran["execution_count"]
            cell["outputs"] = [storable(output) for output in ran["outputs"]]
    after = written_like(before, document)
    path.write_bytes(after.encode())
    return after != before


def run(path: Path) -> dict:
    """The notebook as JSON after a run in the kernel and folder in which nbval will run it.

    It runs on the CPU whatever else the machine has, so that what is stored is the same everywhere.
    """
    notebook = nbformat.read(path, as_version=4)
    kernel = KernelManager(
        kernel_name=CURRENT_ENV_KERNEL_NAME, kernel_spec_manager=NbvalKernelspecManager()
    )
    client = NotebookClient(
        notebook,
        km=kernel,
        resources={"metadata": {"path": str(path.parent)}},
        coalesce_streams=True,
        record_timing=False,
        store_widget_state=False,
        timeout=600,
    )
    try:
        # What the kernel's process says outside the cells is no output of the notebook.
        client.execute(stderr=subprocess.DEVNULL, env=os.environ | ON_THE_CPU)
    except CellExecutionError as error:
        raise NotStored(f"{path.name}: a cell raised\n{error}") from None
    finally:
        kernel.shutdown_kernel(now=True)
    for number, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                raise NotStored(
                    f"{path.name}: cell {number} wrote to stderr\n{cell.source}\n\n{output.text}"
                )
    return json.loads(nbformat.writes(notebook))


def storable(output: dict) -> dict:
    """An output without what is true of one run or one machine only.

    Without its kernel a widget view is an error message that hides the picture beside it, and its
    model id is random. Tracebacks name the folder of the checkout.
    """
    if "data" in output:
        others = {mime: value for mime, value in output["data"].items() if mime != WIDGET_VIEW}
        return output | {"data": others}
    if "traceback" in output:
        return output | {"traceback": [CHECKOUT.sub("", line) for line in output["traceback"]]}
    return output


def written_like(text: str, document: dict) -> str:
    """The document as JSON, indented and ended as ``text`` is."""
    indent = re.match(r"\{\r?\n([ \t]+)", text)
    written = json.dumps(document, ensure_ascii=False, indent=indent[1] if indent else None)
    if text.endswith("\n"):
        written += "\n"
    return written.replace("\n", "\r\n") if "\r\n" in text else written


def main(names: list[str]) -> int:
    # With it set, kernels would draw nothing where JupyterLab draws inline.
    os.environ.pop("MPLBACKEND", None)
    paths = [Path(name).resolve() for name in names] or sorted(ROOT.glob("notebooks/*.ipynb"))
    failures = 0
    for path in paths:
        try:
            print(f"{path.name}: {'stored' if store_outputs(path) else 'unchanged'}")
        except NotStored as problem:
            failures += 1
            print(problem, file=sys.stderr)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
