"""A critic: made with the run's model, its sampling and the `options` of `[critic]`; decides what a speaker says."""

from camel import BestOf, Case, Critic, FunctionJudge, Model, Sampling


def shortest(model: Model, sampling: Sampling, proposals: int = 2) -> Critic:
    """Several proposals, of which the shortest is said: no judge, no further call."""

    def place(case: Case) -> int:
        lengths = [len(option.content) for option in case.options]
        return lengths.index(min(lengths))

    return BestOf(judge=FunctionJudge(place), proposals=proposals)
