"""How named tensors become bytes."""
