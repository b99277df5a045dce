"""Evaluation: what agents and models do, measured: behaviours, agents against single shots, votes of people, programs."""
