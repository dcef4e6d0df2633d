"""What answers: models in this process, or a model server behind it."""
