"""Known error texts of ONNX Runtime about external data, invalid files, shared libraries and execution providers."""

from __future__ import annotations

from onnxgate.diagnostics.catalogue import Entry

ENTRIES = (
    Entry(
        name="external-data-from-bytes",
        patterns=(
            r"model_path must not be empty",
            r"External data path for model loaded from bytes escapes working directory",
        ),
        means="the model has external data but was loaded from bytes, so its folder is unknown",
        fix="load the model by path, or embed the data in the model: `onnx.save(onnx.load(path), path)` (up to 2 GiB)",
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
        means="the model refers to external data by an absolute path",
        fix="save the data in the model's folder: `onnx.save(model, path, save_as_external_data=True,"
        ' location="model.onnx.data")`',
        affected="onnxruntime up to 1.18 and since 1.24",
        rules=("external-data-escapes", "external-data-refused"),
        family="ext_policy",
    ),
    Entry(
        name="external-data-outside",
        patterns=(
            r"External data path[\s\S]{0,600}?escapes (?:both )?(?:the )?(?:model|working|allowed) directory",
            r"should be file inside (?:the )?'?[^\n]{0,300}?points outside the directory",
        ),
        means="the external data is outside the model's folder",
        why="the usual cause is a data file that is a symbolic link to a cache (DVC, Hugging Face)",
        fix="move the data into the model with `onnxgate fix`",
        affected="onnxruntime 1.24 and newer, and the `onnx` package",
        rules=("external-data-escapes", "external-data-refused"),
        family="ext_policy",
    ),
    Entry(
        name="external-data-missing",
        patterns=(
            r"GetFileLength for (?P<file>.{1,400}?) failed",
            r"cannot get file size: No such file or directory(?: \[(?P<file>[^\n]{0,400}?)\](?!\S))?",
            r'External data path does not exist: "(?P<file>[^"\n]{0,400})"',
            r'ReadExternalRawData\(\) failed: open file "?(?P<file>[^"\n]{0,400})"? failed',
            r"Data of TensorProto \( ?tensor name: (?P<name>[^)\n]{0,300})\) should be stored in"
            r" (?P<file>[^\n]{1,400}?), but it (?:doesn't exist|is not)",
            r"load_external_data_for_tensor[\s\S]{0,1200}?FileNotFoundError: \[Errno 2\] No such file or"
            r" directory: '(?P<file>[^'\n]{0,400})'",
        ),
        means=(
            "the external data file `{file}` is missing",
            "an external data file is missing",
        ),
        why="the file was renamed, or it was not committed, fetched or moved together with the model",
        fix="put the model and its data in one folder under their original names, and load the model by path",
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
        means="the external data file is too short: the model reads {size} bytes at offset {offset}",
        why="the file is an incomplete download or a Git LFS pointer, or it belongs to a different export",
        fix="fetch the file (`git lfs pull`), or export the model again and keep the model and its data together",
        rules=("external-data-corrupt", "lfs-pointer"),
        family="ext_range",
    ),
    Entry(
        name="external-data-size-wrong",
        patterns=r"external data size mismatch\. Computed size: (?P<size>\d{1,20}), external_data\.length:"
        r" (?P<length>\d{1,20})",
        means="a tensor of {size} bytes refers to {length} bytes of external data",
        fix="save the model and its data again",
        rules=("external-data-corrupt",),
        family="ext_range",
    ),
    Entry(
        name="external-data-spelling",
        patterns=(
            r'ParseStringWithClassicLocale Failed to parse value: "',
            r"(?:FAIL : |Deserialize tensor [^\n]{0,300}? failed\.)parsing [^\n]{1,80} failed",
            r"model format error!(?: TensorProto external data has duplicate 'location' entries)?\s*(?:\Z|\n)",
        ),
        means="the external data of a tensor has entries that this release does not accept",
        why="an offset or length has a sign, a space or another base, an entry is unknown or empty, or there are two"
        " locations",
        fix="move the data into the model with `onnxgate fix`, or export the model again",
        rules=("external-data-refused", "external-data-corrupt"),
        family="ext_policy",
    ),
    Entry(
        name="external-data-unnamed",
        patterns=(r"model format error! Missing 'location'", r"External data location cannot be empty"),
        means="a tensor has external data but no `location`",
        fix="save the model and its data again",
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
        means="the file is truncated or not an ONNX model",
        why="the file may be a Git LFS pointer, an HTML page or an incomplete download",
        fix="fetch the file (`git lfs pull`), download it again, or re-export the model",
        rules=("lfs-pointer", "not-a-model"),
        family="protobuf",
    ),
    Entry(
        name="graph-missing",
        patterns=(r"ModelProto does not have a graph", r"No graph was found in the protobuf"),
        means="the file is empty, or the model has no graph",
        fix="re-export the model",
        rules=("not-a-model", "invalid-model"),
        family="no_graph",
    ),
    Entry(
        name="library-missing",
        patterns=(
            r"Failed to load library (?P<file>\S{1,400}?) with error: (?P<detail>[^\n]{1,300})",
            r"(?P<detail>lib(?:cu|nv)[\w.]{1,60}): cannot open shared object file: No such file or directory",
        ),
        means="a shared library cannot be loaded: {detail}",
        why="libraries such as `libcublas` and `libcudnn` are part of CUDA and cuDNN",
        fix="install the CUDA and cuDNN versions that this ONNX Runtime release requires, or correct the path of the "
        "library",
        rules=("provider-not-used", "provider-fallback"),
        self_explanatory=True,
    ),
    Entry(
        name="provider-not-created",
        patterns=(
            r"Failed to create (?P<provider>\w{1,60}ExecutionProvider)\. (?:Please reference|Require)"
            r" (?P<detail>[^\n]{1,200})",
            r"Failed to create (?P<provider>\w{1,60}ExecutionProvider)",
        ),
        means="`{provider}` cannot be used; the session silently uses the CPU",
        why="the libraries of the provider are missing or have the wrong major version",
        fix="install the library versions shown in the error message, and check that `session.get_providers()` lists "
        "the provider",
        rules=("provider-not-used", "provider-fallback"),
        example="Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 12.*",
        source="microsoft/onnxruntime#23372",
    ),
    Entry(
        name="provider-unavailable",
        patterns=(
            r"Specified provider '(?P<provider>[^'\n]{1,100})' is not in available provider names",
            r"Unknown Provider Type: (?P<provider>\S{1,100})",
        ),
        means="this ONNX Runtime package does not contain `{provider}`",
        why="if several ONNX Runtime packages are installed, they overwrite each other",
        fix="uninstall all ONNX Runtime packages, then install the package that contains `{provider}`",
        rules=("provider-not-used", "provider-fallback"),
        self_explanatory=True,
    ),
    Entry(
        name="provider-not-chosen",
        patterns=r"[Ss]ince ORT 1\.9, you are required to explicitly set the providers parameter",
        means="this ONNX Runtime build has several execution providers and requires the argument `providers`",
        fix='pass `providers=["CUDAExecutionProvider", "CPUExecutionProvider"]` to `InferenceSession`',
        affected="onnxruntime 1.9 and newer",
        example="Since ORT 1.9, you are required to explicitly set the providers parameter when"
        " instantiating InferenceSession.",
        source="onnxruntime 1.9 and newer, onnxruntime_inference_collection.py",
        self_explanatory=True,
    ),
    Entry(
        name="cuda-failed",
        patterns=(
            r"CUDA failure (?P<code>\d{1,5}): (?P<detail>[^;\n]{1,200})",
            r"CUDNN failure (?P<code>\d{1,5}): (?P<detail>[^;\n]{1,200})",
        ),
        means="CUDA failed: {detail}",
        why="the driver is missing or too old, or the device is out of memory",
        fix="compare the CUDA version shown by `nvidia-smi` with the version that this ONNX Runtime release requires",
        rules=("provider-not-used",),
        example="CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=0",
        source="onnxruntime-gpu 1.23.2 without a driver",
        self_explanatory=True,
    ),
)
