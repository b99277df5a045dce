"""From conversations to models: rows for training, and training on them."""
