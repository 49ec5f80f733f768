"""One tuning run: the loop, its steps, budgets, the journal, the summary and callbacks."""
