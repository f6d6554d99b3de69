"""Rules about budgets, one file each."""
