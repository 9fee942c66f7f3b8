"""Every number of the prototype's rules, in one value: what won here, and what the design first said."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.quality.purchase import PurchaseRules


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers of the rules. Defaults are what won here; `DESIGN` has those the rules were first written with.

    Not of the design: soft taints against pods that have cheaper room elsewhere, as many as `firm` on firm nodes for
    who tolerates spot, `owned` on what is not paid for anyway, `dear` where room costs `dear_from` of the pod's best;
    `quiet_s` (no purchase for a move so soon after a return), `calm_s` (no eviction so soon after a purchase),
    `first_come` (coming machines are counted on as the scheduler will fill them, not largest unit first), `spend`
    (share of the budget one move may take).
    """

    purchase: PurchaseRules = field(default_factory=PurchaseRules)
    hold_s: float = 300.0
    closed_hold_s: float = 300.0
    owned_hold_s: float = 120.0
    levels: tuple[float, ...] = (0.90, 0.75, 0.60, 0.45, 0.30, 0.15)
    hysteresis: float = 0.03
    level_by: str = "fill"
    firm: float = 6.0
    owned: float = 3.0
    dear: float = 6.0
    dear_from: float = 1.5
    no_service: float = 0.0
    every_s: float = 30.0
    close: bool = True
    poor: float = 0.8
    saves: float = 0.25
    most_closed: float = 0.15
    rest_s: float = 3600.0
    evict: bool = True
    evict_after_s: float = 1200.0
    payback_s: float = 3600.0
    tokens: float = 0.045
    most_tokens: float = 60.0
    moves_share: float = 0.05
    moves_window_s: float = 300.0
    together: int = 6
    quiet_s: float = 240.0
    calm_s: float = 300.0
    spend: float = 1.0
    first_come: bool = True
    tried: int = 12


DESIGN = Rules(
    purchase=PurchaseRules(near=0.10),
    hold_s=120.0,
    closed_hold_s=60.0,
    no_service=0.5,
    firm=0.0,
    owned=0.0,
    dear=0.0,
    quiet_s=0.0,
    calm_s=0.0,
    first_come=False,
)
