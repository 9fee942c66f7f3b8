"""The stages of one step, in the order in which `Engine.step` calls them: apply, fold, assign, preempt, pick, publish.

They own no rule: they call the kernels of `decide`, `counted` and `giving_back`, give them room, and hand on what came
out.
"""
