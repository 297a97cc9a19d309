"""What a search costs, in products, whatever machine it runs on."""

from __future__ import annotations

from genpr.neighbors.engine import Engine


class CountingEngine:
    """An engine that counts the products it is asked for."""

    def __init__(self):
        self.engine = Engine()
        self.products = 0

    def tiles(self, width, device):
        self._tiles = self.engine.tiles(width, device)
        self.rows, self.columns = self._tiles.rows, self._tiles.columns
        return self

    def non_negative(self, left, right):
        self.products += len(left) * len(right)
        return self._tiles.non_negative(left, right)

    def largest(self, left, right, count):
        self.products += len(left) * len(right)
        return self.engine.largest(left, right, count)

    def __getattr__(self, name):
        return getattr(self.engine, name)
