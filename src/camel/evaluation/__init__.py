"""Evaluation: behaviors in conversations, agents compared with single answers, votes of people, and HumanEval."""
