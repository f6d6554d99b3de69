"""An engine that cannot be imported."""

raise ImportError("libwonder.so.3: cannot open shared object file")
