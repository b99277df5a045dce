"""HumanEval and HumanEval+: how many of 164 problems a model's programs solve."""
