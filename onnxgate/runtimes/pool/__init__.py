"""The pool of worker processes: started, sandboxed, limited, restarted, and their answers decoded."""
