"""Answers to questions about support: which releases implement an operator, and what changed between two releases."""
