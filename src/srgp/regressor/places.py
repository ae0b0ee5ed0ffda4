"""How far a model has read streams; `srgp learn` finds them, the model's file keeps them."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Streams: TypeAlias = dict[str, dict[str, Any]]  # by their path, or "-": file, offset and so on


def kept_streams(settings: Mapping[str, Any]) -> Streams:
    """The places in the settings of a model file."""
    streams: Streams = {key: dict(place) for key, place in settings.get("streams", {}).items()}
    old = settings.get("stream")  # the only one, by the name it was called by
    if old is not None:
        place = {"file": old["file"], "offset": old["offset"], "row": old["row"]}
        streams.setdefault(old["source"], place)
    return streams


def both(one: Streams, other: Streams) -> Streams:
    """The places of two models in one; of the same stream, the one further on."""
    found = dict(one)
    for key, place in other.items():
        if key not in found or _far(place) > _far(found[key]):
            found[key] = place
    return found


def _far(place: Mapping[str, Any]) -> tuple[str, int]:
    return place["file"], place["offset"]
