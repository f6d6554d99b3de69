"""An engine that crashes during import."""

import os
import signal

os.kill(os.getpid(), signal.SIGILL)
