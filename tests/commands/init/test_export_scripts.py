"""Calls of `torch.onnx.export` are found without running the scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.commands.init.export_scripts import ExportScript, find_export_scripts
from onnxgate.commands.init.generated_files import name_source_function, render_source_function


def find_scripts(folder: Path, source: str) -> list[ExportScript]:
    """Return the export scripts found in a source text."""
    path = folder / "export.py"
    path.write_text(source, encoding="utf-8")
    return list(find_export_scripts(path, "tools/export.py"))


@pytest.mark.parametrize(
    "call",
    [
        "import torch\ntorch.onnx.export(m, a, 'x.onnx')",
        "import torch.onnx\ntorch.onnx.export(m, a, f='x.onnx')",
        "import torch as t\nt.onnx.export(m, a, 'x.onnx')",
        "from torch import onnx\nonnx.export(m, a, 'x.onnx')",
        "from torch import onnx as o\no.export(m, a, 'x.onnx')",
        "import torch.onnx as o\no.export(m, a, 'x.onnx')",
        "from torch.onnx import export\nexport(m, a, 'x.onnx')",
        "import torch\npath = 'x.onnx'\ntorch.onnx.export(m, a, path)",
        "import torch\nfrom pathlib import Path\npath = Path('x.onnx')\ntorch.onnx.export(m, a, str(path))",
    ],
)
def test_a_call_is_found_however_it_is_spelled(tmp_path: Path, call: str) -> None:
    """Each spelling is found with its line and the path that it writes."""
    line = call.count("\n") + 1

    assert find_scripts(tmp_path, call) == [ExportScript("tools/export.py", line, writes="x.onnx")]


@pytest.mark.parametrize(
    "source",
    ["", "import onnx\nonnx.export(m, a, 'x')", "# torch.onnx.export(m)", "torch.onnx.export(", "export(m)", "\0onnx"],
)
def test_other_functions_are_ignored(tmp_path: Path, source: str) -> None:
    """Other functions, comments and broken files are ignored."""
    assert find_scripts(tmp_path, source) == []


ARGPARSE = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument({declared})
args = parser.parse_args()
torch.onnx.export(m, a, {used})
"""
CLICK = """
import click, torch
@click.command()
@click.option("--out", "-o", default="models/x.onnx")
def main(out):
    torch.onnx.export(m, a, out)
"""


@pytest.mark.parametrize(
    ("declared", "used", "words"),
    [
        ('"--out"', "args.out", ("--out", "{output}")),
        ('"-o", "--output-path"', "args.output_path", ("--output-path", "{output}")),
        ('"--to", dest="target"', "str(args.target)", ("--to", "{output}")),
        ('"out"', "args.out", ("{output}",)),
        ('"-o"', "args.o", ("-o", "{output}")),
    ],
)
def test_the_option_that_takes_the_path(tmp_path: Path, declared: str, used: str, words: tuple[str, ...]) -> None:
    """The suggested command uses the script's own option for the output."""
    (script,) = find_scripts(tmp_path, ARGPARSE.format(declared=declared, used=used))

    assert script.command == ("{python}", "tools/export.py", *words)


def test_options_of_click(tmp_path: Path) -> None:
    """An option of click is found by its parameter; its default is the path of the model."""
    (script,) = find_scripts(tmp_path, CLICK)

    assert script == ExportScript("tools/export.py", 6, "models/x.onnx", ("--out",), True)


def test_the_first_argument(tmp_path: Path) -> None:
    """`sys.argv[1]` is a positional argument."""
    (script,) = find_scripts(tmp_path, "import sys, torch\ntorch.onnx.export(m, a, sys.argv[1])")

    assert script.command == ("{python}", "tools/export.py", "{output}")


@pytest.mark.parametrize("used", ["args.folder + '/x.onnx'", "args.other", "make()", "'x.onnx'"])
def test_a_path_that_the_caller_cannot_choose(tmp_path: Path, used: str) -> None:
    """Without an option for the output path, no command is suggested."""
    (script,) = find_scripts(tmp_path, ARGPARSE.format(declared='"--folder"', used=used))

    assert script.command == ()


BUILDER = "import torch\ndef build():\n    return Net(), (torch.zeros(1, 4),)\n"
EXPORTING_MAIN = "def main():\n    torch.onnx.export(m, a, 'x.onnx', input_names=['x'], verbose=True)\n"


@pytest.mark.parametrize(
    "source",
    [
        BUILDER + EXPORTING_MAIN,
        "import torch\ndef build(size=4):\n    return {'model': Net(), 'args': ()}\n" + EXPORTING_MAIN,
        "import torch\ndef build():\n    return dict(model=Net(), args=())\n" + EXPORTING_MAIN,
        "import torch\ndef build():\n    net = Net()\n    return net, torch.randn(1, 4)\n" + EXPORTING_MAIN,
        "import torch\ndef build():\n    return load()\n"
        "if __name__ == '__main__':\n    net, x = build()\n    torch.onnx.export(net, x, 'x', input_names=['x'])\n",
        "import torch\ndef build():\n    return load()\n"
        "def main():\n    torch.onnx.export(*build(), 'x.onnx', input_names=['x'])\n",
    ],
)
def test_a_function_that_builds_the_module_is_a_source(tmp_path: Path, source: str) -> None:
    """The function returns the module and its inputs, or the script passes its results to the export."""
    (script,) = find_scripts(tmp_path, source)

    assert (script.source, script.settings) == ("tools/export.py:build", ("input_names",))


@pytest.mark.parametrize(
    "source",
    [
        BUILDER + "torch.onnx.export(m, a, 'x.onnx')\n",
        BUILDER + "args = parser.parse_args()\n" + EXPORTING_MAIN,
        BUILDER.replace("build()", "build(size)") + EXPORTING_MAIN,
        BUILDER.replace("build()", "build(*, size)") + EXPORTING_MAIN,
        "import torch\ndef build():\n    return Net()\n" + EXPORTING_MAIN,
        BUILDER + BUILDER.replace("build", "other") + EXPORTING_MAIN,
    ],
)
def test_no_source_is_suggested(tmp_path: Path, source: str) -> None:
    """No source is suggested if the import has side effects or the function requires arguments."""
    (script,) = find_scripts(tmp_path, source)

    assert script.source == ""


@pytest.mark.parametrize("call", ["net = build()\n    torch.onnx.export(net", "torch.onnx.export(build().eval()"])
def test_a_function_that_returns_only_the_module(tmp_path: Path, call: str) -> None:
    """The function is not a source, but becomes one if it also returns the inputs."""
    text = f"import torch\ndef build():\n    return Net()\ndef main():\n    {call}, x, 'x.onnx')\n"
    (script,) = find_scripts(tmp_path, text)
    (other,) = find_scripts(tmp_path, text.replace("build()", "build(size)"))

    assert (script.source, script.builder) == ("", "tools/export.py:build")
    assert (other.source, other.builder) == ("", "")


def test_a_source_in_another_file(tmp_path: Path) -> None:
    """A source names the file that defines the function."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "net.py").write_text("def build():\n    return load()\n", encoding="utf-8")
    path = tmp_path / "tools" / "export.py"
    path.write_text(
        "import torch\nfrom net import build\nnet, x = build()\ntorch.onnx.export(net, x, 'x.onnx')\n", encoding="utf-8"
    )
    (script,) = find_export_scripts(path, "tools/export.py")

    assert script.source == "net.py:build"


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("torch.zeros(1, 4)", "(torch.zeros(1, 4),)"),
        ("(torch.zeros(1, 4),)", "(torch.zeros(1, 4),)"),
        ("x", "(torch.ones(2, 3),)"),
        ("np.zeros(4)", ""),
        ("(torch.zeros(size),)", ""),
        ("missing", ""),
    ],
)
def test_inputs_of_a_call(tmp_path: Path, inputs: str, expected: str) -> None:
    """The inputs are repeated in the suggested function only if their code does not need other names."""
    text = "import torch\ndef build():\n    return Net()\ndef main():\n    x = torch.ones(2, 3)\n"
    (script,) = find_scripts(tmp_path, f"{text}    torch.onnx.export(build(), {inputs}, 'x.onnx')\n")

    assert script.inputs == expected


def test_the_suggested_function_is_a_source(tmp_path: Path) -> None:
    """The script still calls the old function, which returns only the module; the new one also returns the inputs."""
    text = "import torch\ndef build():\n    return Net()\ndef main():\n    net = build()\n    net.eval()\n"
    text += "    torch.onnx.export(net, torch.zeros(1, 4), 'x.onnx')\n"
    (script,) = find_scripts(tmp_path, text)
    function = render_source_function(script)
    (pasted,) = find_scripts(tmp_path, f"{text}\n{function}")

    assert function == ("def build_with_inputs():\n    import torch\n    return build().eval(), (torch.zeros(1, 4),)\n")
    assert pasted.source == name_source_function(script) == "tools/export.py:build_with_inputs"


EXPORT_CALL = "torch.onnx.export(net, x, 'x.onnx')"
SAFE = "import torch\ndef build():\n    return Net(), (torch.zeros(1, 4),)\ndef main():\n    net, x = build()\n"
SAFE += f"    {EXPORT_CALL}\n"


@pytest.mark.parametrize(
    "ending",
    [
        "main()\n",
        "def run():\n    main()\nrun()\n",
        "run = main\nrun()\n",
        "RUNS = {'all': main}\nfor run in RUNS.values():\n    run()\n",
        "import atexit\natexit.register(main)\n",
        "try:\n    main()\nexcept OSError:\n    pass\n",
        "if len(sys.argv) > 1:\n    main()\n",
        "if __name__ == '__main__':\n    pass\nelse:\n    main()\n",
        "if __name__ != '__main__':\n    main()\n",
        "class Job:\n    def __init__(self):\n        main()\nJob()\n",
        "class Job:\n    def run(self):\n        main()\nJob().run()\n",
        "class Job:\n    main()\n",
        "def other(x=main()):\n    pass\n",
        EXPORT_CALL,
    ],
)
@pytest.mark.parametrize("returned", ["Net(), (torch.zeros(1, 4),)", "Net()"])
def test_a_file_that_exports_on_import_is_not_a_source(tmp_path: Path, ending: str, returned: str) -> None:
    """`check` imports the file of a source: an export would replace the committed model."""
    text = SAFE.replace("Net(), (torch.zeros(1, 4),)", returned)
    if returned == "Net()":
        text = text.replace("net, x = build()", "net = build()")
    script = find_scripts(tmp_path, f"{text}{ending}")[0]

    assert (script.source, script.builder, script.exporting_file) == ("", "", "tools/export.py")


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "if __name__ == '__main__':\n    main()\n",
        "if '__main__' == __name__ and True:\n    main()\n",
        "if __name__ != '__main__':\n    pass\nelse:\n    main()\n",
        "RUNS = {'all': main}\n",
        "class Net(torch.nn.Module):\n    def to_onnx(self):\n        main()\nnet = Net()\n",
        "def run():\n    main()\nsettings = load()\n",
    ],
)
def test_a_file_that_does_not_export_on_import_is_a_source(tmp_path: Path, ending: str) -> None:
    """The export is in a function that an import does not call."""
    (script,) = find_scripts(tmp_path, f"{SAFE}{ending}")

    assert (script.source, script.exporting_file) == ("tools/export.py:build", "")


def test_a_function_that_exports_is_not_a_source(tmp_path: Path) -> None:
    """`check` calls the function of a source."""
    text = f"import torch\ndef save(net, x):\n    {EXPORT_CALL}\ndef build():\n    net = Net()\n    save(net, x)\n"
    (script,) = find_scripts(tmp_path, f"{text}    return net, (torch.zeros(1, 4),)\n")

    assert (script.source, script.exporting_file) == ("", "")


@pytest.mark.parametrize(
    ("other", "is_safe"),
    [
        ("def build():\n    return load()\n", True),
        (f"import torch\ndef build():\n    return load()\ndef main():\n    {EXPORT_CALL}\n", True),
        (f"import torch\ndef build():\n    return load()\ndef main():\n    {EXPORT_CALL}\nmain()\n", False),
        ("from lib.train import Net\ndef build():\n    return load()\n", False),
        ("from lib import train\ndef build():\n    return load()\n", False),
        ("from .lib import train\ndef build():\n    return load()\n", False),
        ("def build():\n    import lib.train\n    return load()\n", False),
        ("def main():\n    import lib.train\ndef build():\n    return load()\n", True),
    ],
)
def test_a_source_in_another_file_that_exports(tmp_path: Path, other: str, is_safe: bool) -> None:
    """The file of the function and the files that it imports must not export on import; the script may."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/train.py").write_text(f"import torch\n{EXPORT_CALL}\n", encoding="utf-8")
    (tmp_path / "net.py").write_text(other, encoding="utf-8")
    path = tmp_path / "tools" / "export.py"
    path.write_text(f"import torch\nfrom net import build\nnet, x = build()\n{EXPORT_CALL}\n", encoding="utf-8")
    (script,) = find_export_scripts(path, "tools/export.py")

    assert (script.source, script.exporting_file) == (("net.py:build", "") if is_safe else ("", "net.py"))
