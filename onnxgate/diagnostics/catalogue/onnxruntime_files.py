"""Error texts of ONNX Runtime about external data, invalid files, libraries and providers."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import Entry

ENTRIES = (
    Entry(
        name="external-data-from-bytes",
        patterns=(
            r"model_path must not be empty",
            r"External data path for model loaded from bytes escapes working directory",
        ),
        means="the model has external data and was loaded from bytes, so that nobody knows where the data is",
        fix="load it by its path; or embed the data: `onnx.save(model, path, save_as_external_data=False)` below 2 GiB",
        affected="every release; some look in the working directory, and say that the file is missing there",
        rules=("external-data-refused",),
        family="ext_policy",
    ),
    Entry(
        name="external-data-absolute",
        patterns=(
            r"Absolute paths? not allowed for external data location",
            r"Location of external TensorProto \( ?tensor name: (?P<name>[^)\n]{0,300})\) should be a relative"
            r" path, but it is an absolute path",
        ),
        means="a weight is said to lie at an absolute path",
        fix="save the model again with its data beside it: `onnx.save(model, path, save_as_external_data=True,"
        " location=…)`",
        affected="onnxruntime up to 1.18 and since 1.24 refuses it",
        rules=("external-data-escapes", "external-data-refused"),
        family="ext_policy",
    ),
    Entry(
        name="external-data-outside",
        patterns=(
            r"External data path[\s\S]{0,600}?escapes (?:both )?(?:the )?(?:model|working|allowed) directory",
            r"should be file inside (?:the )?'?[^\n]{0,300}?points outside the directory",
        ),
        means="a weight lies outside of the model's folder",
        why="it may be a symbolic link into a cache (DVC, Hugging Face); newer releases refuse to follow it",
        fix="move the data into the model's folder: `onnxgate fix`",
        affected="onnxruntime 1.24 and newer, and `onnx` itself; onnxruntime up to 1.23 loads it",
        rules=("external-data-escapes", "external-data-refused"),
        family="ext_policy",
    ),
    Entry(
        name="external-data-missing",
        patterns=(
            r"GetFileLength for (?P<file>.{1,400}?) failed",
            r"cannot get file size: No such file or directory(?: \[(?P<file>[^\]\n]{0,400})\])?",
            r'External data path does not exist: "(?P<file>[^"\n]{0,400})"',
            r'ReadExternalRawData\(\) failed: open file "?(?P<file>[^"\n]{0,400})"? failed',
            r"Data of TensorProto \( ?tensor name: (?P<name>[^)\n]{0,300})\) should be stored in"
            r" (?P<file>[^\n]{1,400}?), but it (?:doesn't exist|is not)",
            r"load_external_data_for_tensor[\s\S]{0,1200}?FileNotFoundError: \[Errno 2\] No such file or"
            r" directory: '(?P<file>[^'\n]{0,400})'",
        ),
        means="the file with the weights, `{file}`, is not where the model says",
        why="it was not committed, not fetched, renamed, or the model was moved without it",
        fix="keep both files in one folder under the names that they were saved with, and commit both (`git lfs"
        " track` them); a model that is loaded from bytes looks in the working directory: load it by its path",
        rules=("external-data-missing",),
        family="ext_missing",
    ),
    Entry(
        name="external-data-short",
        patterns=(
            r"offset: (?P<offset>\d{1,20}) size to read: (?P<size>\d{1,20}) given file_length:"
            r" (?P<length>\d{1,20}) are out of bounds",
            r"ReadFileIntoBuffer - unexpected end of file\. File: (?P<file>[^,\n]{0,400}), offset:"
            r" (?P<offset>\d{1,20}), length: (?P<size>\d{1,20})",
        ),
        means="the file with the weights is too short: {size} bytes are wanted from byte {offset}",
        why="the download was cut, the file is still a Git LFS pointer, or it belongs to another export",
        fix="fetch it again (`git lfs pull`), or export model and data together",
        rules=("external-data-corrupt", "lfs-pointer"),
        family="ext_range",
    ),
    Entry(
        name="external-data-size-wrong",
        patterns=r"external data size mismatch\. Computed size: (?P<size>\d{1,20}), external_data\.length:"
        r" (?P<length>\d{1,20})",
        means="a weight of {size} bytes is said to take {length} bytes of its file",
        fix="write model and data again, together",
        rules=("external-data-corrupt",),
        family="ext_range",
    ),
    Entry(
        name="external-data-unnamed",
        patterns=r"model format error! Missing 'location'",
        means="a weight lies in another file, and the model does not say in which",
        fix="write model and data again, together",
        rules=("invalid-model", "external-data-corrupt"),
        family="ext_range",
    ),
    Entry(
        name="not-a-model",
        patterns=(
            r"Load model from .{0,400}? failed: ?Protobuf parsing failed",
            r"(?:P|p)rotobuf parsing failed",
            r"Error parsing message with type 'onnx\.ModelProto'",
            r"Unable to parse proto from file: ",
            r"DecodeError: (?:Error parsing message|Truncated message|Wrong wire type)",
        ),
        means="the file is no ONNX model, or not all of it",
        why="it is a Git LFS pointer (130 bytes of text), a cut download, a page of HTML, or another format; the text"
        " is the same for all of them",
        fix="look at what it is with `head -c 100 FILE`: `git lfs pull` for a pointer, else fetch or export it again;"
        " `onnxgate check FILE` names the cause",
        rules=("lfs-pointer", "not-a-model"),
        family="protobuf",
    ),
    Entry(
        name="graph-missing",
        patterns=(r"ModelProto does not have a graph", r"No graph was found in the protobuf"),
        means="the file is empty, or a model without a graph",
        why="it was being written when it was read, or a failed export left it behind",
        fix="export it again",
        rules=("not-a-model", "invalid-model"),
        family="no_graph",
    ),
    Entry(
        name="library-missing",
        patterns=(
            r"Failed to load library (?P<file>\S{1,400}?) with error: (?P<said>[^\n]{1,300})",
            r"(?P<said>lib(?:cu|nv)[\w.]{1,60}): cannot open shared object file: No such file or directory",
        ),
        means="a shared library cannot be loaded: {said}",
        why="it is not installed, or not of the version that the package was built with; `libcu…` and `libcudnn…`"
        " belong to CUDA",
        fix="install the versions of CUDA and cuDNN that this release names, or load a library that is there",
        rules=("provider-not-used", "provider-fallback"),
    ),
    Entry(
        name="provider-not-created",
        patterns=(
            r"Failed to create (?P<provider>\w{1,60}ExecutionProvider)\. (?:Please reference|Require)"
            r" (?P<said>[^\n]{1,200})",
            r"Failed to create (?P<provider>\w{1,60}ExecutionProvider)",
        ),
        means="`{provider}` cannot be used, and the session silently runs on the CPU",
        why="the libraries that it needs are missing or of another major version; `get_available_providers()`"
        " lists it nevertheless",
        fix="install what the line names, and assert `session.get_providers()` after the session is made",
        rules=("provider-not-used", "provider-fallback"),
        source="microsoft/onnxruntime#23372: `Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*`",
    ),
    Entry(
        name="provider-unavailable",
        patterns=(
            r"Specified provider '(?P<provider>[^'\n]{1,100})' is not in available provider names",
            r"Unknown Provider Type: (?P<provider>\S{1,100})",
        ),
        means="this package has no `{provider}`: the session runs on what is left, mostly the CPU",
        why="each execution provider comes in a package of its own (`onnxruntime-gpu`), and two of them in one"
        " environment overwrite each other",
        fix="uninstall all packages of ONNX Runtime, then install the one that has `{provider}`",
        rules=("provider-not-used", "provider-fallback"),
    ),
    Entry(
        name="provider-not-chosen",
        patterns=r"since ORT 1\.9, you are required to explicitly set the providers parameter",
        means="a build with several execution providers wants to be told which to use",
        fix="give `providers=[…]` to `InferenceSession`",
        affected="onnxruntime 1.9 and newer, other packages than the plain one",
        source="the texts of onnxruntime-gpu since 1.9",
    ),
    Entry(
        name="cuda-failed",
        patterns=(
            r"CUDA failure (?P<code>\d{1,5}): (?P<said>[^;\n]{1,200})",
            r"CUDNN failure (?P<code>\d{1,5}): (?P<said>[^;\n]{1,200})",
        ),
        means="CUDA says: {said}",
        why="no driver, a driver older than the CUDA that the package was built with, or no memory left on the device",
        fix="compare `nvidia-smi` with the CUDA version that this release of ONNX Runtime names",
        rules=("provider-not-used",),
        source="facts: section 4, `CUDA failure 35` of onnxruntime-gpu 1.23.2 without a driver",
    ),
)
