"""Storage: durable files, journals, and object stores."""
