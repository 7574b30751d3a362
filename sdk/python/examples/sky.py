"""A whole worker: ``python -m toolbus run sky``."""

from toolbus import NotFound, tool

SKY = {"Lisbon": "clear", "Oslo": "snow"}


@tool(effect="read")
def sky(city: str) -> dict[str, str]:
    """Says what the weather is like in a city."""
    if city not in SKY:
        raise NotFound(f"no weather is known for {city}")
    return {"city": city, "sky": SKY[city]}
