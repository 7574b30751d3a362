from toolbus import NotFound, tool

SKY = {"Lisbon": "clear", "Oslo": "snow"}


@tool(effect="read")
def sky(city: str) -> str:
    """Says what the sky over a city is like."""
    if city not in SKY:
        raise NotFound(f"nobody has looked at the sky over {city}")
    return SKY[city]
