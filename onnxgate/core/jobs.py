"""What an exporter's worker tells of an export beside the file: what was asked for, and what the source itself does."""

from __future__ import annotations

from typing import Literal

import msgspec


class RequestedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that the source asks to be dynamic: of the value of that name, or of its tensor input of that number."""

    axis: int
    value: str = ""
    input: int = -1
    name: str = ""  # "batch", "" where it has none


class NarrowedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A dynamic axis of which the exported program holds for some sizes only."""

    input: int
    axis: int
    lowest: int
    highest: int | None = None
    works: int | None = None  # a size beyond these that the source itself takes; None: none is known


class GrownAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis of an output that grew when the dynamic axes of the inputs did."""

    output: int  # among the tensors that the source returns
    axis: int
    size: int
    grown: int


class ReturnedLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """One of the values that the source returns, flattened."""

    key: str = ""  # "plus" of a mapping, "" where it is known by its position alone
    kind: Literal["tensor", "none", "other"] = "tensor"


class BakedConstant(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the example that was written into the file, where the source computes with whatever it is given."""

    what: str  # the tracer's warning, or "argument `n` is the number 3"
    source: str = ""  # "file.py:31"
    kind: Literal["argument", "branch", "number"] = "argument"
    varies: bool = False  # a branch that the source was seen to take otherwise


class ExportDetails(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; what an exporter does not know is empty."""

    exporter: str = ""  # "dynamo", "TorchScript"
    opsets: tuple[int, int] | None = None  # the lowest and the highest of `ai.onnx` that it translates to
    parameters: tuple[str, ...] = ()  # what the source calls its tensor inputs, where the exporter takes these names
    inputs: tuple[str, ...] = ()  # names asked for
    outputs: tuple[str, ...] = ()
    axes: tuple[RequestedAxis, ...] = ()
    narrow: tuple[NarrowedAxis, ...] = ()
    grew: tuple[RequestedAxis, ...] = ()  # axes of inputs that were made larger, to see which outputs grow
    grown: tuple[GrownAxis, ...] = ()
    leaves: tuple[ReturnedLeaf, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call changes
    remembers: bool = False  # a second call with the same inputs gives other outputs
    fixed: tuple[BakedConstant, ...] = ()


Optimization = Literal["all", "disabled"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A value that crosses the pipe; its keys are the field names."""


class InputCase(Message, frozen=True, kw_only=True):
    """One set of inputs."""

    name: str  # "sizes batch=3 time=16", "sample"
    origin: Literal["generated", "source", "user"]
    inputs: dict[str, str]  # graph input -> absolute path of a .npy file; order is the graph's
    sizes: dict[str, int] = {}  # dynamic axis -> the size that this case gives it
    guessed: tuple[str, ...] = ()  # axes whose size nobody told
    leading: tuple[str, ...] = ()  # those of them that are the first of an input


class Load(Message, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """Make a session of the model, run nothing."""

    model: str  # absolute path
    optimization: Optimization = "all"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    extensions: tuple[str, ...] = ()  # packages, and absolute paths of libraries, that register custom operators


class Run(Message, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """Make a session once, then run every case in order; one failing case does not stop the next."""

    model: str
    cases: tuple[InputCase, ...]
    output: str  # an existing empty folder; the worker writes <case index>/<output index>.npy below it
    optimization: Optimization = "all"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    extensions: tuple[str, ...] = ()  # packages, and absolute paths of libraries, that register custom operators
    again: bool = True  # the first case that can be run is run twice, which shows whether outputs are stable


class Benchmark(Message, frozen=True, kw_only=True, tag="race", tag_field="kind"):
    """Run a model and its baseline in turn, on the first case that both take; then weigh each in fresh processes."""

    model: str
    baseline: str  # absolute path
    cases: tuple[InputCase, ...]
    rounds: int  # baseline, model, model, baseline; 0: nothing is timed
    weighings: int  # fresh processes per model; 0: nothing is weighed
    time_s: float  # no round is begun after so long
    optimization: Optimization = "all"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    extensions: tuple[str, ...] = ()


class Probe(Message, frozen=True, kw_only=True, tag="probe", tag_field="kind"):
    """Say versions: interpreter, engine, packages asked for."""

    packages: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()  # frameworks to have ready for what will be exported, those that are there


class Harvest(Message, frozen=True, kw_only=True, tag="harvest", tag_field="kind"):
    """Write down what the build says of itself: kernels and schemas."""

    output: str  # the .json file to write, in an existing folder


class Export(Message, frozen=True, kw_only=True, tag="export", tag_field="kind"):
    """Export a source, and run it eagerly on the cases (in float32, and in float64 where it can)."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder: model.onnx (and its data), sample/<i>.npy, eager/<case>/<i>.npy, eager64/…
    folder: str  # working directory: the config's folder
    opset: int | None  # what is asked for; None leaves it to the exporter
    opset_ml: int | None = None  # the same of `ai.onnx.ml`
    opset_max: int | None = None  # the newest that every target takes; if `opset` is None, no newer one is written
    opset_ml_max: int | None = None  # the same of `ai.onnx.ml`
    ir_version_max: int | None  # the file is stamped down to this where nothing needs more
    cases: tuple[InputCase, ...] = ()
    external_data: bool = False
    export: bool = True  # False: only the eager outputs are wanted
    float64: bool = True
    eager: bool = True  # False: only the file is wanted
    seed: int = 0  # what all generators of random numbers are started from


class Trace(Message, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Run the exported program of a source on one case, and write down what its nodes give."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder
    folder: str  # working directory: the config's folder
    opset: int | None
    case: InputCase
    names: tuple[str, ...]  # the values that are wanted, as the exporter calls them
    outputs: tuple[str, ...]  # the model's own outputs, which the exporter may have renamed
    limit_bytes: int  # no more than this is written


class Inputs(Message, frozen=True, kw_only=True, tag="inputs", tag_field="kind"):
    """Call what gives the user's own inputs."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder; the worker writes <case index>/<input index>.npy below it
    folder: str  # working directory: the config's folder


class Command(Message, frozen=True, kw_only=True, tag="command", tag_field="kind"):
    """Run a user's command that writes a model. `argv` has its placeholders filled in already; there is no shell."""

    argv: tuple[str, ...]
    folder: str
    environment: dict[str, str] = {}


Job = Load | Run | Benchmark | Probe | Harvest | Export | Trace | Inputs | Command


class Failure(Message, frozen=True, kw_only=True):
    """What a runtime or a source said when it refused: its own words, ANSI and build paths stripped."""

    type: str  # class of the exception, "Fail"
    text: str
    memory: bool = False  # the job's memory limit was hit
    source: str = ""  # "file.py:31" of the user's own code, relative to the config's folder, where the trace has one


class CaseResult(Message, frozen=True, kw_only=True):
    """Outputs of one case, in the order of the graph's outputs; or why there are none."""

    outputs: tuple[str | None, ...] = ()  # absolute .npy paths; None: not a tensor that numpy can hold
    failure: Failure | None = None
    unstable: tuple[str, ...] = ()  # outputs that differed when the same case was run again in the same session
    aliased: tuple[str, ...] = ()  # outputs that lie in the memory of what was fed, proven by changing that


class LoadResult(Message, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """What the session says of itself."""

    providers: tuple[str, ...]  # those really used


class RunResult(Message, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """One entry per case, in their order."""

    providers: tuple[str, ...]
    outputs: tuple[str, ...]  # names
    cases: tuple[CaseResult, ...]


class BenchmarkResult(Message, frozen=True, kw_only=True, tag="race", tag_field="kind"):
    """Seconds per run, one pair per round; and the memory above that of a process without a model, one per weighing."""

    case: str = ""
    reason: str = ""  # why there was no race
    model_s: tuple[float, ...] = ()
    baseline_s: tuple[float, ...] = ()
    model_mib: tuple[float, ...] = ()
    baseline_mib: tuple[float, ...] = ()


class ProbeResult(Message, frozen=True, kw_only=True, tag="probe", tag_field="kind"):
    """Versions, public and local: `{"torch": "2.13.0+cpu"}`; a package that is not there is left out."""

    python: str
    packages: dict[str, str]


class HarvestResult(Message, frozen=True, kw_only=True, tag="harvest", tag_field="kind"):
    """What the build calls itself; the rest is in the file."""

    registry: bool  # whether it can say its kernels and schemas at all
    release: str
    commit: str  # of the build, where it says it


class ExportResult(Message, frozen=True, kw_only=True, tag="export", tag_field="kind"):
    """What the exporter made and what the source itself computes."""

    model: str | None  # absolute path, None where only eager outputs were asked for
    failure: Failure | None = None  # of the export; eager outputs may still be there
    packages: dict[str, str] = {}
    was_training: bool = False
    input_names: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()  # the source's own example inputs, flattened, tensors only; absolute .npy paths
    eager: tuple[CaseResult, ...] = ()  # one per case, then one for the sample
    eager64: tuple[CaseResult, ...] = ()
    eager_reason: str = ""  # why there are no eager outputs
    told: ExportDetails = ExportDetails()  # what was asked for, and what the source does, beside the file
    log: str = ""  # tail of what the exporter printed


class TraceResult(Message, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """What the nodes of the exported program give."""

    values: dict[str, str]  # name -> absolute .npy path
    left_out: int = 0  # values beyond the limit
    failure: Failure | None = None


class InputsResult(Message, frozen=True, kw_only=True, tag="inputs", tag_field="kind"):
    """The user's own inputs, case by case."""

    cases: tuple[dict[str, str], ...]  # name -> absolute path of a .npy file
    failure: Failure | None = None


class CommandResult(Message, frozen=True, kw_only=True, tag="command", tag_field="kind"):
    """How the command ended."""

    status: int
    log: str  # tail of its output


Result = (
    LoadResult
    | RunResult
    | BenchmarkResult
    | ProbeResult
    | HarvestResult
    | ExportResult
    | TraceResult
    | InputsResult
    | CommandResult
)


class Completed(Message, frozen=True, kw_only=True, tag="completed", tag_field="outcome"):
    """The job was done; what it found is in the result."""

    result: Result


class Refused(Message, frozen=True, kw_only=True, tag="refused", tag_field="outcome"):
    """The engine said no: the model does not load, or the source cannot be imported."""

    failure: Failure


class Crashed(Message, frozen=True, kw_only=True, tag="crashed", tag_field="outcome"):
    """The worker died."""

    signal: str  # "SIGSEGV", or "exit status 3"
    during: str  # "load", "case sizes batch=3"
    log: str


class TimedOut(Message, frozen=True, kw_only=True, tag="timed-out", tag_field="outcome"):
    """The worker was ended after the limit."""

    limit_s: float
    during: str
    log: str


class Unavailable(Message, frozen=True, kw_only=True, tag="unavailable", tag_field="outcome"):
    """There is nothing to run it on; the reason and what gets it."""

    reason: str
    hint: str = ""


Observation = Completed | Refused | Crashed | TimedOut | Unavailable
