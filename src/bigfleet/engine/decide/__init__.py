"""The decisions of a step, in their order: fold, credit, assign, preempt, reclaim. They change a workbench, never the
fleet's records.
"""
