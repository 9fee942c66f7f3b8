"""List-watches that several programs need alike, told to whom they concern."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bigfleet.operator.kube.client import Client
from bigfleet.operator.kube.listwatch import ListWatch
from bigfleet.operator.kube.objects import Claim, CsiNode, PersistentVolume, StorageClass
from bigfleet.operator.reading.volumes import Volumes


class Told:
    """Two functions as the one who is told."""

    def __init__(self, seen: Callable[[Any], None], gone: Callable[[str], None]) -> None:
        self.seen = seen
        self.gone = gone


def volume_watches(client: Client, volumes: Volumes, *, limits: bool = True) -> list[ListWatch[Any]]:
    made: list[ListWatch[Any]] = [
        ListWatch(client, "/api/v1/persistentvolumeclaims", Claim, Told(volumes.claim_seen, volumes.claim_gone)),
        ListWatch(
            client, "/api/v1/persistentvolumes", PersistentVolume, Told(volumes.volume_seen, volumes.volume_gone)
        ),
        ListWatch(
            client, "/apis/storage.k8s.io/v1/storageclasses", StorageClass, Told(volumes.class_seen, volumes.class_gone)
        ),
    ]
    if limits:
        limited = Told(volumes.limits_seen, volumes.limits_gone)
        made.append(ListWatch(client, "/apis/storage.k8s.io/v1/csinodes", CsiNode, limited))
    return made
