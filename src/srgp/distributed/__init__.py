"""Data on a cluster: the same sums, made where the rows are, added up on the way (Dask).

    from srgp.distributed import Partitions, local_cluster

Install with `pip install 'srgp[dask]'`.
"""

from srgp.distributed.cluster import connected, local_cluster
from srgp.distributed.partitions import Partitions
from srgp.statistics import summarise_source as summarise

__all__ = ["Partitions", "connected", "local_cluster", "summarise"]
