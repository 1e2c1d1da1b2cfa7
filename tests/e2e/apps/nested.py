"""Structs that hold structs, unions and themselves: their types have to be named in the API's description."""

from __future__ import annotations

from typing import Annotated

import jitney
import msgspec
import numpy as np
import pydantic


class Product(msgspec.Struct):
    name: str
    price: float = 1.0


class Order(msgspec.Struct):
    product: Product
    extras: list[Product] = []
    count: int = 1


class Circle(msgspec.Struct, tag="circle"):
    radius: float


class Square(msgspec.Struct, tag="square"):
    side: float


class Drawing(msgspec.Struct):
    title: str
    shapes: list[Circle | Square] = []


class Address(pydantic.BaseModel):
    street: str
    zip_code: str = ""


class Customer(pydantic.BaseModel):
    name: str
    address: Address


@jitney.deployment(examples=[Order(Product("tea", 2.5), count=3)])
def orders(items: list[Order]) -> list[Product]:
    return [Product(item.product.name, item.product.price * item.count) for item in items]


@jitney.deployment(examples=[Drawing("a wheel", [Circle(1.0), Square(2.0)])])
def drawings(items: list[Drawing]) -> list[Drawing]:
    return items


@jitney.deployment(examples=[Customer(name="Ada", address=Address(street="Main"))])
def customers(items: list[Customer]) -> list[Customer]:
    return items


@jitney.deployment(examples=["tea"])
class Catalogue:
    """Has its own `Product`. `orders` has another type with that name."""

    class Product(msgspec.Struct):
        title: str

    def predict(self, names: list[str]) -> list[Catalogue.Product]:
        return [Catalogue.Product(name) for name in names]


@jitney.deployment(examples=[np.array([1, 2, 3], np.float32)])
def doubled(rows: Annotated[np.ndarray, jitney.Tensor(shape=(3,))]) -> np.ndarray:
    return rows * 2
