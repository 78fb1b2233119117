"""Data sets, the shifts that make clusters differ, and partitions among nodes."""

from coterie.data import celeba as celeba
from coterie.data import cifar10 as cifar10
from coterie.data import digits as digits
from coterie.data import edges as edges
from coterie.data import femnist as femnist
from coterie.data import flickr_mammals as flickr_mammals
from coterie.data import held_out as held_out
from coterie.data import imagenette as imagenette
from coterie.data import images as images
from coterie.data import mnist as mnist
from coterie.data import npz as npz
from coterie.data import shakespeare as shakespeare
from coterie.data import synthetic as synthetic
from coterie.data import table as table
from coterie.data import union as union
from coterie.data.fetch import Archive, Available, available, check_fetchable, get
from coterie.data.partitions import Partition, partitions
from coterie.data.shifts import Shift, shifts
from coterie.data.source import (
    Dataset,
    Source,
    Split,
    as_split,
    from_arrays,
    load,
    require,
    source_of,
    sources,
)

__all__ = [
    "Archive",
    "Available",
    "Dataset",
    "Partition",
    "Shift",
    "Source",
    "Split",
    "as_split",
    "available",
    "check_fetchable",
    "from_arrays",
    "get",
    "load",
    "partitions",
    "require",
    "shifts",
    "source_of",
    "sources",
]
