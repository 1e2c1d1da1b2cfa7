"""A typed item: what does not fit never reaches `predict`."""

import jitney
import msgspec
from witness import record, wait_at_gate


class Order(msgspec.Struct):
    name: str
    count: int = 1


@jitney.deployment(max_batch_size=64)
class Strict:
    def predict(self, orders: list[Order]) -> list[str | Exception]:
        record("predict", [order.name for order in orders])
        wait_at_gate()
        return [
            jitney.InvalidInput("this product is not sold", status=422)
            if order.name == "nothing"
            else f"{order.count} {order.name}"
            for order in orders
        ]
