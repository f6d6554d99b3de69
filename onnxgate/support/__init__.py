"""Tables of what each runtime release supports, and the predictions and suggestions that are based on them."""
