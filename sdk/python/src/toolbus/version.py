"""The version of this package."""

VERSION = "0.1.0"
SDK = f"toolbus-python/{VERSION}"
"""What a worker's heartbeat says it is made of."""
