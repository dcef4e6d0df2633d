"""`Variable`: the table as users hold it, with its gradients and its checkpoint state."""
