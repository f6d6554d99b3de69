"""Support stage: operations of models matched with the support data of runtimes."""
