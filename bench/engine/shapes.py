"""All engine shapes by name, the promised ones first."""

from __future__ import annotations

from bench.engine import large, placed, realistic, reference, units, units_realistic
from bench.engine.workload import ShapeSpec

SHAPES: dict[str, ShapeSpec] = {
    spec.name: spec
    for spec in (
        *large.SHAPES,
        *placed.SHAPES,
        *units.SHAPES,
        *units_realistic.SHAPES,
        *realistic.SHAPES,
        *reference.SHAPES,
    )
}
