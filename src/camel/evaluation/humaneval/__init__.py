"""HumanEval and HumanEval+: the share of 164 programming problems that a model solves."""
