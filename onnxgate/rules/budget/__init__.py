"""Rules about budgets; each file defines one rule."""
