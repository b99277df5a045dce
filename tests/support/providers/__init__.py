"""Servers that speak the documented shapes of providers, each with a ledger of its own."""
