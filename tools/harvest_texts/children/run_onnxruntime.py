"""Runs in the release's environment: execute each job, and print its error as one line of JSON."""

import json
import os
import pathlib
import sys
import warnings


def perform(job):
    """Create the session, and run it if there are inputs."""
    import numpy as np
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = job.get("severity", 4)
    options.intra_op_num_threads = 1
    model = job["model"]
    if job.get("library"):
        options.register_custom_ops_library(job["library"])
    if job.get("bytes"):
        model = pathlib.Path(model).read_bytes()
    session = ort.InferenceSession(model, options, providers=job.get("providers", ["CPUExecutionProvider"]))
    if "feed" not in job:
        return
    feed = {name: np.array(value, dtype=dtype) if dtype else value for name, dtype, value in job["feed"]}
    session.run(job.get("outputs"), feed)


def main():
    """Execute each job; print its name first, because it may crash the process."""
    jobs = json.loads(pathlib.Path(sys.argv[1]).read_text())
    for job in jobs:
        print(json.dumps({"begun": job["case"]}), flush=True)
        if "chdir" in job:
            os.chdir(job["chdir"])
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                perform(job)
            except BaseException as error:  # noqa: BLE001  any error is a text
                answer = {"case": job["case"], "type": type(error).__name__, "text": str(error)}
            else:
                answer = {"case": job["case"], "type": "", "text": "\n".join(str(each.message) for each in warned)}
        print(json.dumps(answer), flush=True)


main()
