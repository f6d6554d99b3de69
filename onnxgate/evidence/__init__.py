"""Types of the evidence about models that the stages of a check collect, and that rules turn into findings."""
