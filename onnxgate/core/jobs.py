"""Jobs sent to workers, their results, and the observations that the pool returns."""

from __future__ import annotations

from typing import Literal

import msgspec


class RequestedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis that the source marks as dynamic. Its input is identified by name (`value`) or index (`input`)."""

    axis: int
    value: str = ""
    input: int = -1
    name: str = ""  # "batch", "" if it is unnamed


class NarrowedAxis(msgspec.Struct, frozen=True, kw_only=True):
    """A dynamic axis for which the exported program supports only some sizes."""

    input: int
    axis: int
    lowest: int
    highest: int | None = None
    works: int | None = None  # a size outside this range that the source itself accepts; None: unknown


class GrownAxis(msgspec.Struct, frozen=True, kw_only=True):
    """An output axis that grew when the dynamic axes of the inputs were made longer."""

    output: int  # index among the tensors that the source returns
    axis: int
    size: int
    grown: int


class ReturnedLeaf(msgspec.Struct, frozen=True, kw_only=True):
    """One value in the flattened result of the source."""

    key: str = ""  # key in a mapping, such as "plus"; "" if only its position is known
    kind: Literal["tensor", "none", "other"] = "tensor"


class BakedConstant(msgspec.Struct, frozen=True, kw_only=True):
    """A constant in the exported model, taken from the example inputs although it may differ in each call."""

    what: str  # the tracer's warning, or "argument `n` is the number 3"
    source: str = ""  # "file.py:31"
    kind: Literal["argument", "branch", "number"] = "argument"
    name: str = ""  # name of the argument
    varies: bool = False  # whether the source took a different branch with other inputs


class ExportDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Details of an export that are not in the exported file. Unknown fields are empty."""

    exporter: str = ""  # "dynamo", "TorchScript"
    opsets: tuple[int, int] | None = None  # the lowest and the highest opset of `ai.onnx` that the exporter supports
    opset: int | None = None  # opset of `ai.onnx` that the source requests
    parameters: tuple[str, ...] = ()  # the source's names of its tensor inputs, if the exporter uses these names
    inputs: tuple[str, ...] = ()  # requested names
    outputs: tuple[str, ...] = ()
    axes: tuple[RequestedAxis, ...] = ()
    narrow: tuple[NarrowedAxis, ...] = ()
    grew: tuple[RequestedAxis, ...] = ()  # axes of inputs that were enlarged to find outputs that grow
    grown: tuple[GrownAxis, ...] = ()
    leaves: tuple[ReturnedLeaf, ...] = ()
    mutated: tuple[str, ...] = ()  # buffers that a call changes
    remembers: bool = False  # whether a second call with the same inputs returned different outputs
    fixed: tuple[BakedConstant, ...] = ()
    constants: tuple[str, ...] = ()  # arguments in `dynamic_shapes` that are not tensors
    recurrent: dict[
        str, int
    ] = {}  # recurrent layer, such as "`encoder` (`nn.LSTM`)" -> its sequence length in the example


Optimization = Literal["all", "disabled"]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """An object sent through the pipe between onnxgate and a worker. Field names are the keys."""

    @property
    def tag(self) -> str:
        """Name of the message's type, such as "run" or "timed-out". A job and its result have the same name."""
        return str(self.__struct_config__.tag)


class InputCase(Message, frozen=True, kw_only=True):
    """One set of inputs for a model."""

    name: str  # "sizes batch=3 time=16", "sample"
    origin: Literal["generated", "source", "user"]
    inputs: dict[str, str]  # graph input -> absolute path of a .npy file, in the graph's order
    sizes: dict[str, int] = {}  # dynamic axis -> its size in this case
    guessed: tuple[str, ...] = ()  # axes of unknown size, for which onnxgate chose a size
    leading: tuple[str, ...] = ()  # the axes in `guessed` that are the first axis of an input or a batch axis
    chosen: dict[str, int | float | bool] = {}  # inputs with one value, chosen so that a branch of an `If` node runs
    named: tuple[str, ...] = ()  # inputs in `chosen` that a node compares with their value for equality
    probe: bool = False  # whether the sizes were chosen for a branch, although the model may not support them
    # Guessed axes of which a search found only one valid size, which is not this one. If the case crashes a runtime:
    # those of which a search found other sizes.
    refused: tuple[str, ...] = ()
    assumed: dict[str, tuple[float, ...]] = {}  # inputs from which sizes are computed -> their guessed values


class SessionJob(Message, frozen=True, kw_only=True):
    """Model and settings of the session that a runtime creates."""

    model: str  # absolute path
    optimization: Optimization = "all"
    providers: tuple[str, ...] = ("CPUExecutionProvider",)
    extensions: tuple[str, ...] = ()  # packages, and absolute paths of libraries, that register custom operators


class Load(SessionJob, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """Job: create a session of the model without running it."""


class Run(SessionJob, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """Job: create one session and run all cases in order, even after a case fails."""

    cases: tuple[InputCase, ...]
    output: str  # an existing empty folder; the worker writes <case index>/<output index>.npy below it
    again: bool = True  # run the first successful case twice, to check whether outputs are stable


class Benchmark(SessionJob, frozen=True, kw_only=True, tag="race", tag_field="kind"):
    """Job: measure the time and the memory of a model and its baseline.

    Both are timed alternately, on the first case that both accept. Then their memory is measured.
    """

    baseline: str  # absolute path
    cases: tuple[InputCase, ...]
    rounds: int  # in each: baseline, model, model, baseline; 0: nothing is timed
    memory_runs: int  # fresh processes per model; 0: memory is not measured
    time_s: float  # no round begins after this many seconds


class Probe(Message, frozen=True, kw_only=True, tag="probe", tag_field="kind"):
    """Job: return the versions of the interpreter, the engine and the requested packages."""

    packages: tuple[str, ...] = ()
    exporters: tuple[str, ...] = ()  # frameworks to import for later exports, if installed


class Harvest(Message, frozen=True, kw_only=True, tag="harvest", tag_field="kind"):
    """Job: write the kernels and schemas that a build of the engine registers to a file."""

    output: str  # the .json file to write, in an existing folder


class Export(Message, frozen=True, kw_only=True, tag="export", tag_field="kind"):
    """Job: export a source, and run it eagerly on the cases (in float32, and in float64 if possible)."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder: model.onnx (and its data), sample/<i>.npy, eager/<case>/<i>.npy, eager64/…
    folder: str  # working directory: the config's folder
    opset: int | None  # requested opset; None leaves it to the exporter
    opset_ml: int | None = None  # same for `ai.onnx.ml`
    opset_max: int | None = None  # newest that every target supports; the limit if `opset` is None
    opset_ml_max: int | None = None  # same for `ai.onnx.ml`
    ir_version_max: int | None  # the file's IR version is lowered to this unless the model needs a newer one
    cases: tuple[InputCase, ...] = ()
    external_data: bool = False
    export: bool = True  # False: only the eager outputs are needed
    float64: bool = True  # also run in float64; after an export only if this is cheap
    half_weights: tuple[str, ...] = ()  # SHA-256 of float16 weights in the model; rounded in the source for `float64`
    eager: bool = True  # False: only the file is needed
    selections: bool = False  # PyTorch: `eager` also has the selections, in the order of their execution
    seed: int = 0  # seed of all random number generators
    committed: str = ""  # absolute path of the model that the export is compared with; may not exist


class Trace(Message, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Job: run the exported program of a source on one case, and write the values of its nodes."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder
    folder: str  # working directory: the config's folder
    opset: int | None
    case: InputCase
    names: tuple[str, ...]  # names of the requested values in the exported program
    outputs: tuple[str, ...]  # the model's own outputs, which the exporter may have renamed
    limit_bytes: int  # maximum number of bytes to write
    committed: str = ""  # as in `Export`


class Inputs(Message, frozen=True, kw_only=True, tag="inputs", tag_field="kind"):
    """Job: call the function that returns the user's own inputs."""

    source: str  # "<absolute path>.py:callable"
    output: str  # an existing empty folder; the worker writes <case index>/<input index>.npy below it
    folder: str  # working directory: the config's folder


class Command(Message, frozen=True, kw_only=True, tag="command", tag_field="kind"):
    """Job: run a user's command that writes a model.

    The placeholders in `argv` have been replaced; no shell is used.
    """

    argv: tuple[str, ...]
    folder: str
    environment: dict[str, str] = {}
    committed: str = ""  # as in `Export`


Job = Load | Run | Benchmark | Probe | Harvest | Export | Trace | Inputs | Command


class Failure(Message, frozen=True, kw_only=True):
    """Error raised by a runtime or a source: the original message, without ANSI codes and build paths."""

    type: str  # class of the exception, such as "Fail"
    text: str
    memory: bool = False  # whether the job exceeded its memory limit
    source: str = ""  # "file.py:31" in the user's own code, relative to the config's folder, if the traceback has one

    @property
    def summary(self) -> str:
        """Type and text of the error. For a `SourceError`, which onnxgate's own exporters raise, only the text."""
        return self.text if self.type == "SourceError" else f"{self.type}: {self.text}"


class SourceSelection(Message, frozen=True, kw_only=True):
    """Absolute .npy paths of the items that the source selected by their scores, as an ONNX operator does."""

    operator: Literal["TopK", "NonMaxSuppression", "ArgMax"]  # `ArgMin` is `ArgMax` with the lowest scores
    scores: str  # of the selected items; of `NonMaxSuppression`, of all boxes
    indices: str  # selected items; of `ArgMax`, with the axis that the operator reduces
    boxes: str = ""  # `NonMaxSuppression`: (boxes, 4)
    largest: bool = True  # whether the highest scores are selected


class CaseResult(Message, frozen=True, kw_only=True):
    """Outputs for one case in the order of the graph's outputs, or the reason why there are none."""

    outputs: tuple[str | None, ...] = ()  # absolute .npy paths; None: not a tensor that numpy can represent
    failure: Failure | None = None
    unstable: tuple[str, ...] = ()  # outputs that differed when the same case was run a second time in the same session
    aliased: tuple[str, ...] = ()  # outputs that share memory with an input, proven by changing that input
    selections: tuple[SourceSelection, ...] = ()  # of the source, if requested


class LoadResult(Message, frozen=True, kw_only=True, tag="load", tag_field="kind"):
    """Properties of the session that the job created."""

    providers: tuple[str, ...]  # those in use


class RunResult(Message, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """Results for all cases, in the order of the cases."""

    providers: tuple[str, ...]
    outputs: tuple[str, ...]  # names of the outputs
    cases: tuple[CaseResult, ...]


class BenchmarkResult(Message, frozen=True, kw_only=True, tag="race", tag_field="kind"):
    """Measured time and memory of a model and its baseline.

    Times are in seconds, two per round. Memory is in MiB per process, without that of a process without a model.
    """

    case: str = ""
    reason: str = ""  # why nothing was timed
    model_s: tuple[float, ...] = ()
    baseline_s: tuple[float, ...] = ()
    model_mib: tuple[float, ...] = ()
    baseline_mib: tuple[float, ...] = ()


class ProbeResult(Message, frozen=True, kw_only=True, tag="probe", tag_field="kind"):
    """Installed versions of packages with local suffixes, such as `{"torch": "2.13.0+cpu"}`, without missing ones."""

    python: str
    packages: dict[str, str]


class HarvestResult(Message, frozen=True, kw_only=True, tag="harvest", tag_field="kind"):
    """Release and commit of the engine's build. Kernels and schemas are in the file that the job names."""

    registry: bool  # whether the build can list its kernels and schemas
    release: str
    commit: str  # of the build, "" if unknown


class ExportResult(Message, frozen=True, kw_only=True, tag="export", tag_field="kind"):
    """The exported file, and the outputs of the source when it runs eagerly."""

    model: str | None  # absolute path, None if only eager outputs were requested
    failure: Failure | None = None  # of the export; eager outputs may still exist
    was_training: bool = False
    input_names: tuple[str, ...] = ()
    sample: tuple[str, ...] = ()  # the source's own example inputs, flattened, tensors only; absolute .npy paths
    eager: tuple[CaseResult, ...] = ()  # one per case, then one for the sample
    eager64: tuple[CaseResult, ...] = ()
    half_weights: tuple[str, ...] = ()  # SHA-256 of float16 weights in the source of `eager64`, as exporters store them
    folded_weights: tuple[str, ...] = ()  # the same of float16 weights that exporters may combine with a normalization
    is_half: bool = False  # whether the source has float16 or bfloat16 weights
    eager_reason: str = ""  # why eager outputs are missing
    details: ExportDetails = ExportDetails()  # details of the export that the file does not contain
    log: str = ""  # tail of what the exporter printed


class TraceResult(Message, frozen=True, kw_only=True, tag="trace", tag_field="kind"):
    """Values of the nodes of an exported program."""

    values: dict[str, str]  # name -> absolute .npy path
    failure: Failure | None = None


class InputsResult(Message, frozen=True, kw_only=True, tag="inputs", tag_field="kind"):
    """The user's own inputs for each case."""

    cases: tuple[dict[str, str], ...]  # name -> absolute path of a .npy file
    failure: Failure | None = None


class CommandResult(Message, frozen=True, kw_only=True, tag="command", tag_field="kind"):
    """Exit status and log of a command."""

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
    """The worker completed the job with this result."""

    result: Result


class Refused(Message, frozen=True, kw_only=True, tag="refused", tag_field="outcome"):
    """The engine does not load the model, or the source cannot be imported."""

    failure: Failure


class Crashed(Message, frozen=True, kw_only=True, tag="crashed", tag_field="outcome"):
    """The worker process crashed."""

    signal: str  # "SIGSEGV", or "exit status 3"
    during: str  # "load", "case sizes batch=3"
    log: str


class TimedOut(Message, frozen=True, kw_only=True, tag="timed-out", tag_field="outcome"):
    """The worker was killed because it exceeded the time limit."""

    limit_s: float
    during: str
    log: str


class Unavailable(Message, frozen=True, kw_only=True, tag="unavailable", tag_field="outcome"):
    """The job cannot be run on this machine, for the given reason."""

    reason: str
    hint: str = ""


Observation = Completed | Refused | Crashed | TimedOut | Unavailable
